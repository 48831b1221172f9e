// Command extauthz-tools has what no running service needs: it measures services under load, converts limits and
// settings of other rate limiters, and compares the decisions of two services.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
)

func main() {
	p := &program{command.OfProcess()}
	os.Exit(p.run(os.Args[1:]))
}

// program has what a run of extauthz-tools gets from its process.
type program struct{ command.Program }

// run runs one subcommand and returns the exit code.
func (p *program) run(args []string) int { return p.Run(p.root(), args) }

// root is the command extauthz-tools with all subcommands.
func (p *program) root() *cobra.Command {
	return p.Root(command.Group(&cobra.Command{
		Use:   "extauthz-tools",
		Short: "Measure, migrate and compare rate limit services",
		Long:  "extauthz-tools has what no running service needs: load, conversions and comparisons.",
	}), p.bench(), p.migrate(), p.compare())
}

// Command extauthz is a rate limit and authorization service for Envoy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// Exit codes: 0 for success; 2 for a mistake in the command line; 1 for every other error, such as rules or settings
// with mistakes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	p := &program{
		env: service.ParseEnvironment(os.Environ()), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stderr),
	}
	os.Exit(p.called(filepath.Base(os.Args[0]), os.Args[1:]))
}

// program has what a run of extauthz gets from its process.
type program struct {
	env            service.Environment
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is a terminal
}

// run runs one subcommand and returns the exit code.
func (p *program) run(args []string) int {
	p.stdout, p.stderr = p.env.HideSecrets(p.stdout), p.env.HideSecrets(p.stderr)
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	command, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	name := strings.Replace(command.CommandPath(), " ", ": ", 1)
	fmt.Fprintf(p.stderr, "%s: %s\n", name, apikey.Mask(err.Error())) // a key may be in the wrong argument
	if _, ok := errors.AsType[*usageError](err); !ok {
		return exitFailed
	}
	fmt.Fprintf(p.stderr, "(%s --help lists all flags)\n", command.CommandPath())
	return exitUsage
}

// root is the command extauthz with all subcommands.
func (p *program) root() *cobra.Command {
	root := p.serve()
	root.Use = "extauthz"
	root.Short = "Rate limits and authorization for Envoy"
	root.Long = "extauthz is a rate limit and authorization service for Envoy. It counts exactly, in memory or in " +
		"Redis.\n" +
		"Without a subcommand it runs serve. All settings are environment variables: see extauthz settings."
	root.Args = knownSubcommand
	root.SilenceErrors, root.SilenceUsage, root.DisableAutoGenTag = true, true, true
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(flagError)
	version, serve := root.Flags().BoolP("version", "v", false, "print the version"), root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *version {
			return p.printVersion("text")
		}
		return serve(c, args)
	}
	root.AddCommand(p.serve(), p.bench(), p.buckets(), p.check(), p.health(), p.client(), p.echo(), p.keys(), p.migrate(),
		p.settings(), p.schema(), p.version(), p.man())
	return root
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported is the error of a command that has printed the mistakes itself.
var errReported = errors.New("mistakes were reported")

// readSettings reads the settings from the environment.
func (p *program) readSettings() (*service.Settings, error) {
	s, err := service.ReadSettings(p.env)
	if err != nil {
		return nil, fmt.Errorf("the environment has mistakes:\n%w\n(extauthz settings lists all settings)", err)
	}
	return s, nil
}

// wants returns check with an error that names the wanted arguments.
func wants(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) != nil {
			return usage("want %s", want)
		}
		return nil
	}
}

// noArguments accepts no arguments. The hint at the end of its error names what the operator may look for.
func noArguments(hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("takes only flags, not %q%s", strings.Join(args, " "), hint)
		}
		return nil
	}
}

// knownSubcommand refuses any argument, because cobra passes it only names that are not subcommands.
func knownSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			names = append(names, sub.Name())
		}
	}
	return usage("unknown subcommand %q%s: want %s or --help", args[0], service.DidYouMean(args[0], names...),
		strings.Join(names, ", "))
}

// flagError returns the error for a mistake in the flags of a command.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() { // an unknown flag may belong to a misspelt subcommand
		if err := knownSubcommand(c, c.Flags().Args()); err != nil {
			return err
		}
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name, meant := "--"+unknown.GetSpecifiedName(), "--"+unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name, meant = "-"+short, "--"+short
			if c.Flags().Lookup(short) != nil {
				return usage("unknown flag %s: write --%s", name, short)
			}
		}
		return usage("unknown flag %s%s", name, service.DidYouMean(meant, names...))
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage("%w", invalidValue(c, invalid))
	}
	return usage("%w", err)
}

// invalidValue returns the error for a wrong value of a flag. pflag reads `-owner` as `-o wner`.
func invalidValue(c *cobra.Command, invalid *pflag.InvalidValueError) error {
	flag, value := invalid.GetFlag(), invalid.GetValue()
	if word := flag.Shorthand + value; flag.Shorthand != "" && c.Flags().Lookup(word) != nil {
		return fmt.Errorf("unknown flag -%s: write --%s", word, word)
	}
	err := errors.Unwrap(invalid)
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		err = errors.New("want a whole number")
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, value, err)
}

// isTerminal reports whether a file is a terminal, where an operator can press Ctrl-C.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// untilInterrupted returns a context that is done at Ctrl-C or SIGTERM. A second one ends the process at once.
func untilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

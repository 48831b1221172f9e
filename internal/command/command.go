// Package command has what the programs of this project share: how a program runs its subcommands, reads flags and
// prints results.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// Exit codes: 2 is for a mistake in the command line, and for ErrUnread. 1 is for every other error.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Program has what a program gets from its process.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool     // Stderr is a terminal
	Width          int      // columns of the terminal that Stdout is, 0 for another file
	Screen         *os.File // that terminal, nil for another file
	Color          bool     // the terminal may show colors
}

// OfProcess returns the program that this process runs.
func OfProcess() Program {
	p := Program{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), // where an operator can press Ctrl-C
	}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		p.Width, p.Screen, p.Color = width, os.Stdout, os.Getenv("NO_COLOR") == "" // https://no-color.org
	}
	return p
}

// Root makes a command the root of a program, which then keeps secrets of the environment out of what it prints. Beside
// its own subcommands it has version, also as a flag, and man.
func (p *Program) Root(root *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	p.Stdout, p.Stderr = settings.HideSecrets(p.Stdout), settings.HideSecrets(p.Stderr)
	root.Args = knownSubcommand
	root.SilenceErrors, root.SilenceUsage, root.DisableAutoGenTag = true, true, true
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(flagError)
	version, run := root.Flags().BoolP("version", "v", false, "print the version"), root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *version {
			return p.printVersion(root.Name(), "text")
		}
		return run(c, args)
	}
	root.AddCommand(subcommands...)
	root.AddCommand(p.version(root.Name()), man(root.Name()))
	return root
}

func man(program string) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a directory",
		Hidden: true, // for packagers
		Args:   Wants(cobra.ExactArgs(1), "one directory, for example: "+program+" man /usr/share/man/man1"),
		RunE: func(c *cobra.Command, args []string) error {
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: program, Manual: program}, args[0])
		},
	}
}

// Group makes a command one that only has subcommands.
func Group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.Args, c.RunE = knownSubcommand, func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(subcommands...)
	return c
}

// Run runs one subcommand of a root and returns the exit code.
func (p *Program) Run(root *cobra.Command, args []string) int {
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	command, err := root.ExecuteC()
	if err == nil {
		return ExitOK
	}
	switch {
	case errors.Is(err, ErrUnread):
		return ExitUsage
	case errors.Is(err, ErrReported):
		return ExitFailed
	}
	name := strings.Replace(command.CommandPath(), " ", ": ", 1)
	fmt.Fprintf(p.Stderr, "%s: %s\n", name, apikey.Mask(err.Error())) // a key may be in the wrong argument
	if _, ok := errors.AsType[*usageError](err); !ok {
		return ExitFailed
	}
	if !command.DisableFlagParsing {
		fmt.Fprintf(p.Stderr, "(%s --help lists all flags)\n", command.CommandPath())
	}
	return ExitUsage
}

type usageError struct{ error }

// Usage returns the error for a mistake in the command line.
func Usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// ErrReported is the error of a command that has printed the mistakes itself.
var ErrReported = errors.New("mistakes were reported")

// ErrUnread is the error of a command that has reported that a system did not answer.
var ErrUnread = errors.New("a system did not answer")

// Reported returns ErrReported unless all is well.
func Reported(ok bool) error {
	if ok {
		return nil
	}
	return ErrReported
}

// Wants returns check with an error that names the wanted arguments.
func Wants(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) != nil {
			return Usage("want %s", want)
		}
		return nil
	}
}

// NoArguments accepts no arguments. The hint at the end of its error names what the operator may look for.
func NoArguments(hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage("takes only flags, not %q%s", strings.Join(args, " "), hint)
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
	return Usage("unknown subcommand %q%s: want %s or --help", args[0], suggest.Meant(args[0], names...),
		strings.Join(names, ", "))
}

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
				return Usage("unknown flag %s: write --%s", name, short)
			}
		}
		return Usage("unknown flag %s%s", name, suggest.Meant(meant, names...))
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return Usage("%w", err)
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	if word := flag.Shorthand + value; flag.Shorthand != "" && c.Flags().Lookup(word) != nil {
		return Usage("unknown flag -%s: write --%s", word, word) // pflag reads `-owner` as `-o wner`
	}
	return Usage("--%s %q: %w", flag.Name, value, Wanted(err))
}

// Wanted returns what is wanted in place of a wrong value, without the flag, for an error of pflag.
func Wanted(err error) error {
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		return errors.New("want a whole number")
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return errors.Unwrap(invalid)
	}
	return err
}

// Working says on a terminal what takes long. The function that it returns removes the line.
func (p *Program) Working(on string) (done func()) {
	if !p.Terminal {
		return func() {}
	}
	fmt.Fprint(p.Stderr, on+" …")
	return func() { fmt.Fprint(p.Stderr, "\r\x1b[K") }
}

// UntilInterrupted returns a context that is done at Ctrl-C or SIGTERM. A second one ends the process at once.
func UntilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Command extauthz answers Envoy's two questions: may this request pass, and is it over its limit.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// Exit codes: 0 for success, 1 if `check` found mistakes, a server failed or is not healthy, 2 if a command could not
// start.
const (
	exitOK      = 0
	exitFailed  = 1
	exitNoStart = 2
)

func main() {
	logging.Disable() // that of the Redis client, which is one for the whole process; the stores report what matters
	p := &program{
		env: service.ParseEnvironment(os.Environ()), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stderr),
	}
	os.Exit(p.run(os.Args[1:]))
}

// program is what a run of extauthz gets from its process.
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
	root.SetArgs(append([]string{}, args...)) // nil would stand for the arguments of the process
	command, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	name := strings.Replace(command.CommandPath(), " ", ": ", 1)
	fmt.Fprintf(p.stderr, "%s: %s\n", name, apikey.Mask(err.Error())) // a key may be in the wrong place
	start, ok := errors.AsType[*startError](err)
	if !ok {
		return exitFailed
	}
	if start.usage {
		fmt.Fprintf(p.stderr, "(%s --help lists all flags)\n", command.CommandPath())
	}
	return exitNoStart
}

// root is the command extauthz with all subcommands.
func (p *program) root() *cobra.Command {
	root := p.serve()
	root.Use = "extauthz"
	root.Short = "Rate limits and authorization for Envoy"
	root.Long = "extauthz is a rate limit and authorization service for Envoy: exact limits, in memory or in Redis.\n" +
		"Without a subcommand it serves; all settings are environment variables (extauthz settings)."
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
	root.AddCommand(p.serve(), p.check(), p.health(), p.echo(), p.keys(), p.settings(), p.schema(), p.version(), p.man())
	return root
}

// startError is the reason why a command could not start.
type startError struct {
	error
	usage bool // it is a mistake in the arguments
}

// usage returns the error of a mistake in the arguments.
func usage(format string, args ...any) error { return &startError{fmt.Errorf(format, args...), true} }

// errReported is the error of a command that has reported what is wrong itself.
var errReported = errors.New("mistakes were reported")

// serverError returns the error of a server: one that it could not start, unless it has run.
func serverError(err error) error {
	if _, ran := errors.AsType[*service.StopError](err); ran || err == nil {
		return err
	}
	return &startError{error: err}
}

// readSettings reads the settings from the environment.
func (p *program) readSettings() (*service.Settings, error) {
	s, err := service.ReadSettings(p.env)
	if err != nil {
		return nil, &startError{error: fmt.Errorf("the environment has mistakes:\n%w\n(extauthz settings lists all settings)",
			err)}
	}
	return s, nil
}

// wants checks arguments as cobra does, with an error that names what is wanted.
func wants(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) != nil {
			return usage("want %s", want)
		}
		return nil
	}
}

// noArguments accepts no arguments. The hint says what the operator may be looking for.
func noArguments(hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("takes only flags, not %q%s", strings.Join(args, " "), hint)
		}
		return nil
	}
}

// knownSubcommand refuses an argument, because it is not one of the subcommands of a command.
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

// flagError is what is wrong with the flags of a command.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() { // a misspelt subcommand explains a flag that is not known here
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

// invalidValue returns what is wrong with the value of a flag. `-owner` is read as `-o wner`.
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

// isTerminal reports whether a person may read what is written, and press Ctrl-C.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// untilInterrupted is done at Ctrl-C or SIGTERM; a second one ends the process at once.
func untilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

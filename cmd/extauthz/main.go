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
	"syscall"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Exit codes: 0 for success, 1 when `check` found mistakes, a server failed or is not healthy, 2 when it could not start.
const (
	exitOK      = 0
	exitFailed  = 1
	exitNoStart = 2
)

const usage = `extauthz is a rate limit service for Envoy: exact limits, in memory or in Redis.

Usage:
  extauthz [serve]            serve; all settings are environment variables
  extauthz check DIR          check the rule files of a directory, and with --envoy FILE a configuration of Envoy against them;
                              exit 1 when there are mistakes (extauthz check --help)
  extauthz health             ask a running service whether it is healthy; exit 1 when it is not (extauthz health --help)
  extauthz keys COMMAND       make, list, rotate and revoke API keys (extauthz keys --help)
  extauthz settings           list the settings, their defaults and meaning (--markdown as a table)
  extauthz version            print the version, and from what it was built (-o json for programs)
  extauthz --help             print this

Example:
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=rules REDIS_URL=redis://127.0.0.1:6379 extauthz
`

func main() {
	service.QuietRedis()
	os.Exit(command(os.Args[1:], service.ParseEnvironment(os.Environ()), os.Stdin, os.Stdout, os.Stderr))
}

// command runs one subcommand and returns the exit code.
func command(args []string, env service.Environment, stdin io.Reader, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	onTerminal := isTerminal(stderr)
	stderr = env.HideSecrets(stderr)
	switch name {
	case "serve":
		return serve(args, env, onTerminal, stderr)
	case "check":
		return check(args, env, stdout, stderr)
	case "health":
		return askHealth(args, env, stdout, stderr)
	case "echo":
		return echo(args, env, stdout, stderr)
	case "keys":
		return keysCommand(args, env, stdin, stdout, stderr)
	case "settings":
		return printSettings(args, stdout, stderr)
	case "version", "--version", "-v":
		return printVersion(args, stdout, stderr)
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	fmt.Fprintf(stderr, "extauthz: unknown subcommand %q: want serve, check, health, keys, settings, version or --help\n", name)
	return exitNoStart
}

func serve(args []string, env service.Environment, onTerminal bool, stderr io.Writer) int {
	if len(args) > 0 {
		if args[0] == "--help" || args[0] == "-h" {
			fmt.Fprint(stderr, usage)
			return exitOK
		}
		fmt.Fprintf(stderr, "extauthz: serve takes no arguments, not %q: all settings are environment variables (extauthz settings)\n", args[0])
		return exitNoStart
	}
	s, err := service.ReadSettings(env)
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n(extauthz settings lists all settings)\n", err)
		return exitNoStart
	}
	ctx, stop := untilInterrupted()
	defer stop()
	this := thisBuild()
	return exitCode(service.Run(ctx, service.Config{
		Settings: s, Stderr: stderr, Terminal: onTerminal,
		Build: telemetry.Build{Version: this.Version, Revision: this.Commit, GoVersion: this.Go},
	}), stderr)
}

// exitCode reports an error of a server, and returns the exit code for it.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "extauthz: %v\n", err)
	if _, ran := errors.AsType[*service.StopError](err); ran {
		return exitFailed
	}
	return exitNoStart
}

// isTerminal reports whether a person may read what is written, and press Ctrl-C.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// untilInterrupted is done at Ctrl-C or SIGTERM; a second one ends the process at once.
func untilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

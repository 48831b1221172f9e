package main

import (
	"fmt"
	"io"

	"github.com/extauthz/extauthz/internal/service"
)

const echoUsage = `extauthz echo is an upstream for trying things out: it answers every request with 200 and, as JSON, what has reached
it (method, path and headers), and /healthz with 200. It speaks HTTP/1.1 and HTTP/2 without TLS.

It listens on ECHO_ADDRESS, 127.0.0.1:8000 by default; in a container set it to 0.0.0.0:8000.
With STRICT_ENVIRONMENT=true a misspelt variable stops its start.

Example:
  ECHO_ADDRESS=127.0.0.1:8000 extauthz echo
`

// echo runs the subcommand of this name.
func echo(args []string, env service.Environment, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if args[0] == "--help" || args[0] == "-h" {
			fmt.Fprint(stdout, echoUsage)
			return exitOK
		}
		fmt.Fprintf(stderr, "extauthz: echo takes no arguments, not %q: ECHO_ADDRESS says where it listens\n", args[0])
		return exitNoStart
	}
	ctx, stop := untilInterrupted()
	defer stop()
	return exitCode(service.Echo(ctx, env, stderr), stderr)
}

// Testreport reads `go test -json` and prints what go test prints without it: a line for each package, and the output of what
// failed. It ends in a count; it exits with 1 when something failed and, with CI=true in the environment, also when a test was
// skipped: on a developer's machine a skipped test is a choice, in CI it is a gap that nobody sees.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := report(os.Stdin, os.Stdout, os.Getenv("CI") == "true"); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// Command pictures draws the pictures of the documentation into docs/pictures. They show the flow of a request, the
// decisions of the five algorithms for the same client, and the figures of `make bench`. `make pictures` runs it.
// A test finds pictures that are out of date.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/extauthz/extauthz/tools/bench/figures"
)

// pictures returns the files of docs/pictures by name.
func pictures() (map[string]string, error) {
	report, err := figures.Latest()
	return map[string]string{
		"algorithms.svg":  algorithms(),
		"data-flow.svg":   dataFlow(),
		"growth.svg":      growth(report),
		"performance.svg": performance(report),
	}, err
}

func main() {
	if err := run(filepath.Join("docs", "pictures")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	all, err := pictures()
	if err != nil {
		return err
	}
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("run it from the root of the repository (make pictures): %w", err)
		}
	}
	return nil
}

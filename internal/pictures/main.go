// Command pictures draws the pictures of the documentation into docs/pictures: the flow of a request, and the
// decisions of the five algorithms for the same client. `make pictures` runs it. A test finds pictures that are out
// of date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pictures returns the files of docs/pictures by name.
func pictures() map[string]string {
	return map[string]string{
		"algorithms.svg": algorithms(),
		"data-flow.svg":  dataFlow(),
	}
}

func main() {
	if err := run(filepath.Join("docs", "pictures")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	for name, content := range pictures() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("run it from the root of the repository (make pictures): %w", err)
		}
	}
	return nil
}

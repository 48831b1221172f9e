// Command pictures draws what the documentation shows, into docs/pictures: how a request goes, and what the five algorithms do
// with the same client. `make pictures` runs it, and a test finds a picture that no longer is what it draws.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pictures are the files of docs/pictures.
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

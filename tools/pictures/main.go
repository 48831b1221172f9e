// Command pictures draws the pictures of the documentation into docs/pictures. They show the flow of a request, the
// decisions of the five algorithms for the same client, and the figures of `make bench`. `make pictures` runs it.
// A test finds pictures that are out of date.
package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/extauthz/extauthz/tools/bench/figures"
)

// dataFlow is the flow of a request, without its style. On the left, the request goes down from the client through
// Envoy's two filters to the application. On the right is extauthz, which the filters call.
//
//go:embed data-flow.svg
var dataFlow string

// pictures returns the files of docs/pictures by name.
func pictures() (map[string]string, error) {
	report, err := figures.Latest()
	return map[string]string{
		"algorithms.svg":  algorithms(),
		"data-flow.svg":   strings.Replace(dataFlow, "STYLE", "\n"+style, 1),
		"growth.svg":      growth(report),
		"performance.svg": performance(report),
	}, err
}

func main() {
	all, err := pictures()
	for name, content := range all {
		err = cmp.Or(err, os.WriteFile(filepath.Join("docs", "pictures", name), []byte(content), 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run it from the root of the repository (make pictures):", err)
		os.Exit(1)
	}
}

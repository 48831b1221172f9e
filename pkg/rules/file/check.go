package file

import (
	"io"
	"os"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Check reads the rules of directories, files and standard input together. See Config for names with dots, and Parse
// for the results.
func Check(paths []string, stdin io.Reader, cfg Config) (rules.Set, rules.Problems) {
	var all snapshot
	for _, path := range paths {
		var file File
		var problem *strictyaml.Problem
		info, err := os.Stat(path)
		switch {
		case path == Stdin:
			file, problem = strictyaml.ReadFrom("standard input", stdin, ruleKind())
		case err == nil && info.IsDir():
			found := readDirectory(path, cfg)
			all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
			continue
		default:
			file, problem = strictyaml.ReadFile(path, ruleKind())
		}
		if problem != nil {
			problem.Warning = false // a file that was named must be read
			all.problems = append(all.problems, *problem)
			continue
		}
		all.files = append(all.files, seenFile{File: file})
	}
	return parse(all, cfg)
}

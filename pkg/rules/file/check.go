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
		found := readPath(path, stdin, cfg)
		all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
	}
	return parse(all, cfg)
}

func readPath(path string, stdin io.Reader, cfg Config) snapshot {
	if info, err := os.Stat(path); path != Stdin && err == nil && info.IsDir() {
		return readDirectory(path, cfg)
	}
	var file File
	var problem *strictyaml.Problem
	if path == Stdin {
		file, problem = strictyaml.ReadFrom("standard input", stdin, ruleKind())
	} else {
		file, problem = strictyaml.ReadFile(path, ruleKind())
	}
	if problem == nil {
		return snapshot{files: []seenFile{{File: file}}}
	}
	problem.Warning = false // a file that was named must be read
	return snapshot{problems: rules.Problems{*problem}}
}

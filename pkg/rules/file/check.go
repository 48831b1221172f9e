package file

import (
	"io"
	"os"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Check reads the rules of directories, files and standard input together. Config describes which files of a directory
// are left out, Parse describes the results.
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
			reading, _ := follow(path, cfg).Read()
			found := snapshotOf(path, reading, cfg)
			found.allowEmpty(cfg)
			all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
			continue
		default:
			file, problem = strictyaml.ReadFile(path, ruleKind())
		}
		if problem != nil {
			problem.Warning = false // the caller named this file
			all.problems = append(all.problems, *problem)
			continue
		}
		all.files = append(all.files, poll.File{Name: file.Name, Content: file.Content})
	}
	return parse(all, cfg)
}

package file

import (
	"io"
	"os"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Check reads the rules of directories, files and standard input together. Config describes which files of a directory
// are left out, Parse describes the results.
func Check(paths []string, stdin io.Reader, cfg Config) (rules.Set, rules.Problems) {
	var all snapshot
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			reading, _ := follow(path, cfg).Read()
			found := snapshotOf(path, reading, cfg)
			found.allowEmpty(cfg)
			all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
			continue
		}
		file, problem := strictyaml.ReadFile(path, stdin, ruleKind())
		if problem != nil {
			problem.Warning = false // the caller named this file
			all.problems = append(all.problems, *problem)
			continue
		}
		all.files = append(all.files, file)
	}
	return parse(all, cfg)
}

package rulefile

import (
	"io"
	"os"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Check reads the rules of directories, files and standard input together. See Config for names with dots, and Parse for the results.
func Check(paths []string, stdin io.Reader, cfg Config) (Rules, Problems) {
	var all snapshot
	for _, path := range paths {
		found := readPath(path, stdin, cfg)
		all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
	}
	return parse(all, cfg)
}

func readPath(path string, stdin io.Reader, cfg Config) snapshot {
	if path == Stdin {
		const name = "standard input"
		content, problem := readContent(name, stdin, ruleGrammar())
		if problem != nil {
			return snapshot{problems: Problems{*problem}}
		}
		return snapshot{files: []File{{Name: name, Content: content}}}
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return readDirectory(path, cfg)
	}
	file, problem := readFile(path, ruleGrammar())
	if problem == nil {
		return snapshot{files: []File{file}}
	}
	problem.Severity = Error // a file that was named must be read
	return snapshot{problems: Problems{*problem}}
}

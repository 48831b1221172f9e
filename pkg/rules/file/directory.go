package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// readDirectory reads the rule files of a directory once, sorted by name. Every regular file counts, whatever its
// extension, symbolic links are followed, directories below are not read. A directory that is missing, unreadable or
// without a rule file is a mistake.
func readDirectory(dir string, cfg Config) snapshot {
	entries, err := os.ReadDir(dir)
	if err != nil {
		problem := strictyaml.Unreadable(dir, "rule directory", err)
		if errors.Is(err, fs.ErrNotExist) {
			problem.Message = "the rule directory does not exist"
			problem.Hints = []string{
				"create it, or mount it; rules are read from RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY",
			}
		}
		return snapshot{problems: strictyaml.Problems{*problem}}
	}
	s, kind := snapshot{place: placeOf(dir)}, ruleKind()
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if skipped(entry.Name(), cfg) {
			continue
		}
		if isLeftover(entry.Name()) {
			message := "left out: an editor's backup or lock file"
			s.problems = append(s.problems, strictyaml.Problem{File: path, Warning: true, Message: message})
			continue
		}
		file, problem := strictyaml.ReadFile(path, kind)
		if problem != nil {
			s.problems = append(s.problems, *problem)
			continue
		}
		s.files = append(s.files, seenFile{File: file, inPlace: !renamedAfter(file.Info.ModTime(), path)})
	}
	if len(s.files) == 0 && !s.problems.HasErrors() {
		s.problems = append(s.problems, strictyaml.Problem{
			File: dir, Message: "no rule files in this directory",
			Hints: []string{"put a file into it that begins with `domain: <name>`"},
		})
	}
	return s
}

// placeOf is the path of a directory with all links followed, and where its link ..data leads, if it has one. Both
// change when the whole directory is replaced in one step.
func placeOf(dir string) string {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		path = dir
	}
	data, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		return path // no ConfigMap
	}
	return filepath.Join(path, data)
}

// skipped reports whether a file is left out because of its name. Kubernetes mounts a ConfigMap as links into
// ..data, which is itself a link to ..2026_01_02_15_04_05.123; the links are read, the directories behind them are
// not.
func skipped(name string, cfg Config) bool {
	return strings.HasPrefix(name, "..") || cfg.IgnoreDotfiles && strings.HasPrefix(name, ".")
}

// isLeftover reports whether a name is one that editors give to backups, swap files and locks.
func isLeftover(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.HasPrefix(name, ".#") ||
		strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

// renamedAfter reports whether a file got its name after it was last written. A rename changes the directory, to
// write to a file does not. So the directory of a file that was renamed into place has changed since that was
// written, and the directory of one that was made there, and then written to, has not. If both happened in the same
// tick of the file system's clock (1 to 10 ms), they cannot be told apart; the answer is then no, which costs a
// delay at most. A change of something else in the directory hides a writer until its next write: see markWritten. A
// link is renamed into place as a file is.
func renamedAfter(written time.Time, path string) bool {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false // it is gone already
	}
	return slices.ContainsFunc([]string{path, target}, func(name string) bool {
		dir, err := os.Stat(filepath.Dir(name))
		return err == nil && dir.ModTime().After(written)
	})
}

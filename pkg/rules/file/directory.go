package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// readDirectory reads the rule files of a directory once, sorted by name. Every regular file counts, whatever its
// extension, unless Config.LeaveOutNotes leaves it out. Symbolic links are followed; subdirectories are not read. A
// directory that is missing, unreadable or without a rule file is a mistake.
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
		if cfg.LeaveOutNotes && isNote(file) {
			message := "left out: not a YAML file by its name, and it sets no `domain`"
			s.problems = append(s.problems, strictyaml.Problem{File: path, Warning: true, Message: message})
			continue
		}
		s.files = append(s.files, seenFile{File: file, inPlace: !renamedAfter(file.Info.ModTime(), path)})
	}
	if s.empty = len(s.files) == 0 && !s.problems.HasErrors(); s.empty {
		s.problems = append(s.problems, strictyaml.Problem{
			File: dir, Message: "no rule files in this directory",
			Hints: []string{"add a file that begins with `domain: <name>`"},
		})
	}
	return s
}

// placeOf returns the path of a directory with all links followed, and with the target of its link ..data, if it has
// one. The result changes when the whole directory is replaced in one step.
func placeOf(dir string) string {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		path = dir
	}
	data, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		return path // not a ConfigMap
	}
	return filepath.Join(path, data)
}

// skipped reports whether a file is left out because of its name. Kubernetes mounts a ConfigMap as links into ..data,
// itself a link to a directory such as ..2026_01_02_15_04_05.123. Only the links into ..data are read.
func skipped(name string, cfg Config) bool {
	return strings.HasPrefix(name, "..") || cfg.IgnoreDotfiles && strings.HasPrefix(name, ".")
}

// isLeftover reports whether a name looks like a backup, swap file or lock of an editor.
func isLeftover(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.HasPrefix(name, ".#") ||
		strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

// yamlExtensions are the extensions of rule files. They may also have none, as keys of a ConfigMap.
var yamlExtensions = []string{"", ".yaml", ".yml", ".json"}

// domainKey matches a line that begins with the key `domain`.
var domainKey = regexp.MustCompile(`(?m)^\W*domain\W*:`)

// isNote reports whether a file is no YAML file by its name, and no rule file by its content. An empty file may be a
// rule file that was cut off.
func isNote(f File) bool {
	return !slices.Contains(yamlExtensions, strings.ToLower(filepath.Ext(f.Name))) &&
		len(bytes.TrimSpace(f.Content)) > 0 && !domainKey.Match(f.Content)
}

// renamedAfter reports whether a file, or the link to it, was renamed into place after it was last written. A rename
// changes the directory; a write to a file does not. So the directory of a renamed file is newer than the file.
//
// A rename within the same tick of the file system's clock (1 to 10 ms) as the write is not detected. That costs a
// delay at most. Another change in the directory hides a writer until its next write: see markWritten.
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

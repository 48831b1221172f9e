package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

// snapshot is the result of one reading of a directory.
type snapshot struct {
	files    []File
	problems strictyaml.Problems
	alone    []string // the files that were named by themselves: prefix files beside them are read when they are needed
	empty    bool     // the last problem is that the directory has no rule files
}

// follow returns a follower of the files in a directory. Every regular file counts, whatever its extension, unless
// snapshotOf leaves it out. Symbolic links are followed; subdirectories are not read.
func follow(dir string, cfg Config) *poll.Follower {
	return poll.New(ruleKind().MaxSize, func() (paths []string, err error) {
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			if !skipped(entry.Name(), cfg) {
				paths = append(paths, filepath.Join(dir, entry.Name()))
			}
		}
		return paths, err
	})
}

// snapshotOf returns the rule files of a reading. A directory that cannot be read or has no rule file is a mistake.
func snapshotOf(dir string, r poll.Reading, cfg Config) (s snapshot) {
	if r.Err != nil {
		problem := strictyaml.Unreadable(dir, "rule directory", r.Err)
		if errors.Is(r.Err, fs.ErrNotExist) {
			problem.Message = "the rule directory does not exist"
			problem.Hints = []string{
				"create it, or mount it; rules are read from RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY",
			}
		}
		return snapshot{problems: strictyaml.Problems{*problem}}
	}
	leftOut := func(f File, why string) {
		s.problems = append(s.problems, strictyaml.Problem{File: f.Name, Warning: true, Message: "left out: " + why})
	}
	notes := 0
	for _, f := range r.Files {
		switch {
		case isLeftover(filepath.Base(f.Name)):
			leftOut(f, "an editor's backup or lock file")
		case f.Err != nil:
			s.problems = append(s.problems, *strictyaml.Unread(f, ruleKind()))
		case cfg.LeaveOutNotes && isNote(f):
			notes++
			fallthrough // parse leaves it out, unless it is a prefix file
		default:
			s.files = append(s.files, f)
		}
	}
	if s.empty = len(s.files) == notes && !s.problems.HasErrors(); s.empty {
		s.problems = append(s.problems, strictyaml.Problem{
			File: dir, Message: "no rule files in this directory", Warning: strictyaml.Warning(cfg.AllowEmpty),
			Hints: []string{"add a file that begins with `domain: <name>`"},
		})
	}
	return s
}

// generation identifies the contents and the errors of a snapshot. Warnings do not count, so that an editor's swap file
// is not a change, except for that of an empty directory, which Run reports as an error.
func (s snapshot) generation() string {
	h := sha256.New()
	write := func(name string, content []byte) {
		name = filepath.Base(name)
		fmt.Fprintf(h, "%d:%s%d:", len(name), name, len(content))
		h.Write(content)
	}
	for _, f := range s.files {
		write(f.Name, f.Content)
	}
	for i, p := range s.problems {
		if !bool(p.Warning) || s.empty && i == len(s.problems)-1 {
			write(p.File, []byte(p.Message))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
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

// isNote reports whether neither name nor content are those of a rule file. An empty file may have been cut off.
func isNote(f File) bool {
	return !slices.Contains(yamlExtensions, strings.ToLower(filepath.Ext(f.Name))) &&
		len(bytes.TrimSpace(f.Content)) > 0 && !domainKey.Match(f.Content)
}

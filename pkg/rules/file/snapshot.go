package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// seenFile is a rule file of a snapshot.
type seenFile struct {
	strictyaml.File
	// inPlace means that the file may have been written to since it got its name, so that it may be incomplete.
	inPlace bool
}

// snapshot is the result of one reading of a directory.
type snapshot struct {
	// place is the path with all links followed. It changes when another directory replaces this one: see placeOf.
	place    string
	files    []seenFile
	problems strictyaml.Problems
	empty    bool // the directory has no rule files, and no other error
}

// file returns the file with a name, nil if there is none.
func (s snapshot) file(name string) *seenFile {
	if i := slices.IndexFunc(s.files, func(f seenFile) bool { return f.Name == name }); i >= 0 {
		return &s.files[i]
	}
	return nil
}

// allowEmpty makes an empty directory a warning if cfg allows it.
func (s *snapshot) allowEmpty(cfg Config) {
	if s.empty && cfg.AllowEmpty {
		s.problems[len(s.problems)-1].Warning = true
	}
}

// generation identifies the contents and the errors of a snapshot. Warnings do not count, so that an editor's swap file
// is not a change.
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
	for _, p := range s.problems {
		if !p.Warning {
			write(p.File, []byte(p.Message))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// seenFile is a rule file as one look at a directory saw it.
type seenFile struct {
	strictyaml.File
	// inPlace says that the file may have been written to since it got its name, so that it may not be complete.
	inPlace bool
}

// snapshot is what one look at a directory found.
type snapshot struct {
	// place tells directories apart, of which one has replaced another: it is where the links lead.
	place    string
	files    []seenFile
	problems strictyaml.Problems
}

// file returns the file of a name, nil if there is none.
func (s snapshot) file(name string) *seenFile {
	if i := slices.IndexFunc(s.files, func(f seenFile) bool { return f.Name == name }); i >= 0 {
		return &s.files[i]
	}
	return nil
}

// generation tells snapshots with different contents or different errors apart. Warnings do not count, so that an
// editor's swap file is no change.
func (s snapshot) generation() string {
	h := sha256.New()
	write := func(name, content string) {
		name = filepath.Base(name)
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(content), content)
	}
	for _, f := range s.files {
		write(f.Name, string(f.Content))
	}
	for _, p := range s.problems {
		if !p.Warning {
			write(p.File, p.Message)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

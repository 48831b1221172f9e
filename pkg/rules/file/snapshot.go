package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
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
	for _, f := range s.files {
		writePart(h, filepath.Base(f.Name))
		writePart(h, string(f.Content))
	}
	for _, p := range s.problems {
		if !p.Warning {
			writePart(h, filepath.Base(p.File))
			writePart(h, p.Message)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

func writePart(h hash.Hash, part string) {
	fmt.Fprintf(h, "%d:%s", len(part), part)
}

package strictyaml_test

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

// FuzzDecode: no content and no path makes a Document panic. Each problem shows an existing place, in printable text.
// Values without errors are within the bounds of their tags.
func FuzzDecode(f *testing.F) {
	for _, path := range archives(f) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, ".yaml") {
				f.Add(file.Data, "shelves[0].lock.digit")
			}
		}
	}
	f.Add([]byte(unsound), "shelves[1].locks[0]")
	f.Fuzz(func(t *testing.T, content []byte, path string) {
		s, doc := decode(string(content))
		doc.Add(path, suggest.Mistake{Message: "MISTAKE", Warning: true})
		doc.Add("", suggest.Mistake{Path: path, Message: "MISTAKE", Warning: true, OnKey: true})
		problems := doc.Problems()
		for _, p := range problems {
			cases.CheckProblem(t, p)
		}
		if !problems.HasErrors() {
			checkShelves(t, s.Shelves)
		}
	})
}

func checkShelves(t *testing.T, shelves []shelf) {
	t.Helper()
	for _, s := range shelves {
		switch {
		case s.Count < 0, s.Weight != nil && (*s.Weight < 1 || *s.Weight > 1000), s.Row < 0 || s.Row > 40, s.Wait < 0:
			t.Errorf("out of bounds: %+v", s)
		case s.Tags != nil && len(s.Tags) == 0:
			t.Errorf("no tags: %+v", s)
		case s.Position == "":
			t.Errorf("no position: %+v", s)
		}
		checkShelves(t, s.Shelves)
	}
}

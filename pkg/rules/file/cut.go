package file

import (
	"bytes"
	"os"
	"path/filepath"
	"unicode"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// change is an active file and its present state. A deleted file counts as written in place; it is empty, without Info.
type change struct{ before, now *seenFile }

// changes returns the active files that are deleted or whose texts have changed.
func changes(active, s snapshot) (list []change) {
	if s.place != active.place {
		return nil // the whole directory was replaced in one step, as a ConfigMap is
	}
	for i := range active.files {
		before := &active.files[i]
		now := s.file(before.Name)
		if now == nil {
			now = &seenFile{File: File{Name: before.Name}, inPlace: true}
		}
		if now.Info == nil || !bytes.Equal(before.Content, now.Content) {
			list = append(list, change{before, now})
		}
	}
	return list
}

// suspects identifies the files that may be cut off, and their texts. It returns "" if there are none.
func suspects(list []change) string {
	var s snapshot
	for _, c := range list {
		if c.now.inPlace || bytes.HasPrefix(c.before.Content, c.now.Content) {
			s.files = append(s.files, *c.now)
		}
	}
	if s.files == nil {
		return ""
	}
	return s.generation()
}

// markWritten marks the files that were written to since an earlier reading, whatever else changed in the directory. It
// keeps one copy of a text that both have.
func (s snapshot) markWritten(earlier snapshot) {
	for i := range s.files {
		f := &s.files[i]
		e := earlier.file(f.Name)
		if e == nil {
			continue
		}
		equal := bytes.Equal(e.Content, f.Content)
		if equal {
			f.Content = e.Content
		}
		if os.SameFile(e.Info, f.Info) && (e.inPlace || !equal) {
			f.inPlace = true
		}
	}
}

// cutOff reports the files of which only the beginning is left, even if they were renamed into place. White space and
// comments at the end do not count.
func cutOff(list []change) (problems strictyaml.Problems) {
	for _, c := range list {
		if c.now.Info == nil || !bytes.HasPrefix(c.before.Content, c.now.Content) {
			continue
		}
		whole, left := withoutEnd(c.before.Content), trimEnd(c.now.Content)
		if len(left) >= len(whole) {
			continue
		}
		doc := strictyaml.NewDocument(c.now.File, ruleKind())
		missing := bytes.Count(bytes.TrimSpace(whole[len(left):]), []byte("\n")) + 1
		doc.FailAtEnd("the file ends here, but the active rules continue for "+suggest.Counted(missing, "line")+
			": it was cut off, or it is still being written",
			"write the whole file to ..new in the same directory, and then `mv ..new "+filepath.Base(c.now.Name)+"`",
			"to delete the lines on purpose, leave a comment in their place, or send SIGHUP after the file has been "+
				"unchanged for "+QuietPeriod.String())
		problems = append(problems, doc.Problems()...)
	}
	return problems
}

// withoutEnd returns a text without white space and comment lines at its end.
func withoutEnd(text []byte) []byte {
	for {
		text = trimEnd(text)
		last := bytes.LastIndexByte(text, '\n') + 1
		if !bytes.HasPrefix(bytes.TrimSpace(text[last:]), []byte("#")) {
			return text
		}
		text = text[:last]
	}
}

func trimEnd(text []byte) []byte { return bytes.TrimRightFunc(text, unicode.IsSpace) }

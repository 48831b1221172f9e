package file

import (
	"bytes"
	"path/filepath"
	"time"
	"unicode"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// QuietPeriod is how long a file that may be incomplete has to stay unchanged before it takes effect.
const QuietPeriod = 10 * time.Second

// Incomplete reports a file that still has to wait: only the beginning of its active text is left, it was not renamed
// into place, and it has changed within QuietPeriod. Its writer may not be done. White space and comments at the end do
// not count.
func Incomplete(active, now File, kind *strictyaml.Kind) strictyaml.Problems {
	whole, left := withoutEnd(active.Content), trimEnd(now.Content)
	if !now.InPlace || now.Place != active.Place || time.Since(now.Since) >= QuietPeriod ||
		len(left) >= len(whole) || !bytes.HasPrefix(active.Content, now.Content) {
		return nil
	}
	doc := strictyaml.NewDocument(now, kind)
	missing := bytes.Count(bytes.TrimSpace(whole[len(left):]), []byte("\n")) + 1
	doc.FailAtEnd("the file ends here, but the active rules continue for "+suggest.Counted(missing, "line")+
		": it takes effect when it has been unchanged for "+QuietPeriod.String()+", because it may still be being written",
		"write the whole file to ..new in the same directory, and then `mv ..new "+filepath.Base(now.Name)+"`: "+
			"a renamed file does not wait")
	return doc.Problems()
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

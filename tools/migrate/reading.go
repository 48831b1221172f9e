package migrate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// reading is a configuration that is read part by part.
type reading struct {
	*strictyaml.Document
	failed bool // the part that is being read has an error, so it has no equivalent
}

// Fail adds an error of the part that is being read. Document.Fail adds one that leaves the part its equivalent.
func (r *reading) Fail(at *strictyaml.Value, message string, hints ...string) {
	r.failed = true
	r.Document.Fail(at, message, hints...)
}

// number reads a whole number. It returns 0 for any other value, which it reports.
func (r *reading) number(v *strictyaml.Value, name string, least int64) int64 {
	n, err := strconv.ParseInt(v.Text(), 10, 64)
	switch {
	case strings.Contains(v.Text(), "${"):
		r.Fail(v, suggest.Quoted(name)+" is the placeholder "+v.String(), "write the number that it stands for")
		return 0
	case err != nil || n < least:
		r.Fail(v, suggest.Quoted(name)+" cannot be "+v.String(), fmt.Sprintf("want a whole number, %d or more", least))
		return 0
	}
	return n
}

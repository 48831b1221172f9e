package doctor

import (
	_ "embed" // findings.txt
	"strings"
	"sync"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// Kind is a kind of finding. A finding is a [strictyaml.Problem] with the ID of its kind.
type Kind struct {
	ID string
	// Severity is "error", or "warning" if the service and Envoy work, but may not do what the operator wants.
	Severity string
	// Text describes all findings of this kind. Remedy are the last hints of each.
	Text   string
	Remedy []string
}

//go:embed findings.txt
var table string

// Kinds returns all kinds of findings: see findings.txt.
var Kinds = sync.OnceValue(func() (kinds []Kind) {
	for entry := range strings.SplitSeq(strings.TrimSpace(table), "\n\n") {
		lines := strings.Split(entry, "\n")
		id, severity, _ := strings.Cut(lines[0], " ")
		kinds = append(kinds, Kind{id, severity, lines[1], lines[2:]})
	}
	return kinds
})

// finding returns a finding without a position. Its texts may repeat what Envoy or Redis has sent.
func finding(id, message string, hints ...string) strictyaml.Problem {
	p := strictyaml.Problem{ID: id, Message: suggest.Printable(message, maxText)}
	for _, k := range Kinds() {
		if k.ID == id {
			p.Warning = k.Severity == "warning"
			hints = append(hints, k.Remedy...)
		}
	}
	for _, hint := range hints {
		if hint != "" {
			p.Hints = append(p.Hints, suggest.Printable(hint, maxText))
		}
	}
	return p
}

// maxText is how many characters a text of a finding can have.
const maxText = 2000

// Report is what was found in one configuration or running system.
type Report struct {
	// At is the path of the file, or the address.
	At string `json:"at"`
	// Facts are what is as it should be, one sentence each.
	Facts []string `json:"facts,omitempty"`
	// Unread means that the system did not answer.
	Unread   bool                `json:"unread,omitempty"`
	Findings strictyaml.Problems `json:"-"`
}

func (r *Report) find(id, message string, hints ...string) {
	f := finding(id, message, hints...)
	f.File = r.At
	r.Findings = append(r.Findings, f)
}

func (r *Report) fact(text string) { r.Facts = append(r.Facts, suggest.Printable(text, maxText)) }

// check adds a text as a finding with this id, or as a fact if it is not wrong.
func (r *Report) check(wrong bool, id, text string, hints ...string) {
	if wrong {
		r.find(id, text, hints...)
		return
	}
	r.fact(text)
}

// unknown adds the finding that something could not be checked.
func (r *Report) unknown(what string, err error) {
	r.find("not-checked", "could not be checked: "+what+": "+err.Error())
}

package ratelimit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Enforce is `enforce:`. It enforces a rule for a part of the values of an entry. For all others, and for requests
// without the entry, the rule is in shadow.
type Enforce struct {
	Percent *Percent `yaml:"percent" doc:"For how many percent of the values, 0 to 100. Two decimals count." required:"true" example:"10"`
	By      string   `yaml:"by" doc:"The key of the entry whose value decides." required:"true" example:"user"`
	Salt    string   `yaml:"salt" doc:"Another salt chooses other values." default:"the same values for all rules" example:"2026-05"`
}

// Percent is a part in hundredths of a percent.
type Percent int64

const wholePercent Percent = 10_000

func (p Percent) String() string { return strconv.FormatFloat(float64(p)/100, 'f', -1, 64) }

// UnmarshalText reads a percentage with at most two decimals.
func (p *Percent) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	*p = Percent(math.Round(min(max(0, f), 100) * 100))
	if err != nil || !(math.Abs(f*100-float64(*p)) < 1e-6) { // also NaN
		return errors.New(wantPercent)
	}
	return nil
}

const wantPercent = "want a number from 0 to 100 with at most two decimals, such as `10` or `0.5`"

// Place returns the place of a value, from 0 to 99.99 percent: the first 64 bits of the SHA-256 of Salt and the value,
// modulo 10,000. So it is the same in all replicas, versions and rules.
func (e *Enforce) Place(value string) Percent {
	sum := sha256.Sum256([]byte(e.Salt + value))
	return Percent(binary.BigEndian.Uint64(sum[:8]) % uint64(wholePercent))
}

// Includes reports whether the rule is enforced for a value of the entry. "" is no value.
func (e *Enforce) Includes(value string) bool {
	return value != "" && e.Percent != nil && e.Place(value) < *e.Percent
}

// Enforced returns in words whether the limit is enforced for a request with these entries, "" without Enforce.
func (l *RuleLimit) Enforced(entries []descriptors.Entry) string {
	if l.Enforce == nil {
		return ""
	}
	return l.Enforce.Explain(l.Enforce.ValueIn(entries))
}

// Explain returns in words whether the rule is enforced for a value of the entry.
func (e *Enforce) Explain(value string) string {
	switch is := fmt.Sprintf("enforced: %s %s of %s percent", e.By, e.Place(value), e.Percent); {
	case value == "":
		return "not enforced: no " + e.By
	case e.Includes(value):
		return is
	default:
		return "not " + is
	}
}

// ValueIn returns the value of the entry that decides, "" for none. Of several with the key, the last one does.
func (e *Enforce) ValueIn(entries []descriptors.Entry) string {
	for _, entry := range slices.Backward(entries) {
		if entry.Key == e.By {
			return entry.Value
		}
	}
	return ""
}

// Check reports mistakes in `enforce` at a path. entries are the patterns of the keys of entries that a request can
// have, and of is their place in words.
func (e *Enforce) Check(m *Mistakes, at string, entries []string, of string) {
	has := func(key string) bool { return descriptors.Match(key, e.By) }
	switch {
	case e.Percent == nil:
		m.At(at, at+".percent").Lacking().Fail("`enforce` without `percent`", "add `percent: 10`")
	case *e.Percent < 0 || *e.Percent > wholePercent:
		m.At(at+".percent").Fail("`percent` cannot be "+suggest.Quoted(e.Percent.String()), wantPercent)
	}
	want := "add an action that makes the entry"
	if len(entries) > 0 {
		want = "want the key of an entry: " + suggest.OneOf(entries)
	}
	switch {
	case e.By == "":
		m.At(at, at+".by").Lacking().Fail("`enforce` without `by`", want)
	case !slices.ContainsFunc(entries, has):
		m.At(at+".by").Fail("`by` names no entry "+of+": "+suggest.Quoted(e.By), suggest.DidYouMean(e.By, entries), want)
	}
}

// checkEnforce reports mistakes in `enforce` of a limit, and modes that it cannot have. way is as for checkLimit.
func (c *checker) checkEnforce(n *Node, l *Limit, at string, way []descriptors.Pattern) {
	if l.Enforce == nil {
		return
	}
	var keys []string
	for _, p := range way {
		keys = append(keys, p.Key)
		if p.Key == l.Enforce.By && p.Value != "" && !p.Wildcard() {
			c.At(at+".enforce.by").Warn("the rule fixes the value of "+suggest.Quoted(p.Key)+": the limit is enforced for "+
				"all its requests, or for none", "name an entry whose value differs between clients")
		}
	}
	l.Enforce.Check(&c.Mistakes, at+".enforce", keys, "on the way to this limit")
	if n.Shadow || l.Shadow {
		c.Key(at+".enforce").Fail("`enforce` beside `shadow_mode`",
			"in shadow mode, the limit is enforced for no request: delete one of them")
	}
}

package replay

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/internal/compatibility"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// judge compares answers and knows what earlier requests have changed.
type judge struct {
	strict    bool
	wildcards map[string]*wildcards // by domain
	buckets   map[string]*seen      // by descriptor
	bare      bool
}

// seen is what the earlier requests with a descriptor have shown.
type seen struct {
	first          time.Time
	oldReset       int64
	oldRemaining   uint32
	windowEnded    bool // the window of the old service has ended since the first request
	deniedTogether bool // a denied request has charged the descriptor in the old service only
}

func newJudge(cfg Config) *judge {
	j := &judge{strict: cfg.Strict, wildcards: map[string]*wildcards{}, buckets: map[string]*seen{}}
	for _, d := range cfg.Domains {
		if j.wildcards[d.Name] == nil {
			j.wildcards[d.Name] = new(wildcards)
		}
		j.wildcards[d.Name].add(d.Descriptors)
	}
	return j
}

type (
	statusOf = ratelimitv3.RateLimitResponse_DescriptorStatus
	limitOf  = ratelimitv3.RateLimitResponse_RateLimit
)

const over = ratelimitv3.RateLimitResponse_OVER_LIMIT

// compare returns the differences between two answers to a request.
func (j *judge) compare(number int, r *Request, older, newer answer) (found []Difference) {
	name := make([]string, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		name[i] = descriptorName(r.GetDomain(), d)
	}
	verdict := Difference{Request: number, Descriptor: strings.Join(name, "; "), What: "verdict",
		Old: older.verdict(), New: newer.verdict()}
	if older.code != codes.OK || newer.code != codes.OK {
		if verdict.Old == verdict.New {
			return nil
		}
		return []Difference{verdict}
	}
	full := len(older.GetStatuses()) == len(newer.GetStatuses()) && len(older.GetStatuses()) == len(name)
	j.bare = j.bare || len(older.GetStatuses()) == 0 && len(newer.GetStatuses()) > 0
	for i, d := range r.GetDescriptors() {
		s := j.see(name[i], older, newer, i)
		if !full {
			verdict.Row = cmp.Or(verdict.Row, j.explain(r, d, s, statusOrNone(older, i), statusOrNone(newer, i)))
			continue
		}
		of := older.GetStatuses()[i]
		for _, diff := range j.compareStatus(of, newer.GetStatuses()[i], s) {
			diff.Request, diff.Descriptor = number, name[i]
			if diff.Row == "" {
				diff.Row = j.explain(r, d, s, of, newer.GetStatuses()[i])
			}
			if diff.What == "code" {
				verdict.Row = cmp.Or(verdict.Row, diff.Row)
			}
			found = append(found, diff)
		}
	}
	if verdict.Old != verdict.New {
		found = append(found, verdict)
	}
	j.remember(r, name, older)
	return found
}

// compareStatus returns the differences of one descriptor, some of them with their row.
func (j *judge) compareStatus(older, newer *statusOf, s *seen) (found []Difference) {
	add := func(what, older, newer string, row compatibility.Row) {
		if older != newer {
			found = append(found, Difference{What: what, Old: older, New: newer, Row: row})
		}
	}
	add("code", older.GetCode().String(), newer.GetCode().String(), "")
	add("limit", limitName(older.GetCurrentLimit()), limitName(newer.GetCurrentLimit()), "")
	var row compatibility.Row
	denied := older.GetCode() == over && newer.GetCode() == over
	if !j.strict && denied && older.GetLimitRemaining() == 0 {
		row = compatibility.Remaining
	}
	add("remaining", fmt.Sprint(older.GetLimitRemaining()), fmt.Sprint(newer.GetLimitRemaining()), row)
	if a, b := reset(older), reset(newer); a-b > 1 || b-a > 1 { // a second can pass between the two
		row = ""
		switch {
		case j.strict:
		case denied:
			row = compatibility.Reset
		default:
			row = compatibility.Algorithm
		}
		add("reset", fmt.Sprintf("%d s", a), fmt.Sprintf("%d s", b), row)
	}
	return found
}

// explain returns the row that lists a difference of a descriptor, "" for none.
func (j *judge) explain(r *Request, d *commonv3.RateLimitDescriptor, s *seen, older, newer *statusOf,
) compatibility.Row {
	peek := d.GetHitsAddend() != nil && d.GetHitsAddend().GetValue() == 0
	switch {
	case s.windowEnded:
		return compatibility.Algorithm // in strict mode, too: it ended between the two requests
	case j.strict:
		return ""
	case peek && older.GetCode() != over && newer.GetCode() == over:
		return compatibility.Peek
	case j.wildcards[r.GetDomain()].ambiguous(d):
		return compatibility.Wildcards
	case s.deniedTogether:
		return compatibility.Denied
	}
	return ""
}

// see notes when the window of the old service ends.
func (j *judge) see(name string, older, newer answer, i int) *seen {
	s := j.buckets[name]
	if s == nil {
		s = &seen{first: time.Now()}
		j.buckets[name] = s
		return s.update(statusOrNone(older, i))
	}
	of := statusOrNone(older, i)
	limit := statusOrNone(newer, i).GetCurrentLimit()
	window := descriptors.Unit(limit.GetUnit()).Micros() * int64(max(1, limit.GetUnitMultiplier().GetValue()))
	ended := of.GetCurrentLimit() != nil && (reset(of) > s.oldReset || of.GetLimitRemaining() > s.oldRemaining)
	s.windowEnded = s.windowEnded || ended || window > 0 && time.Since(s.first).Microseconds() >= window
	return s.update(of)
}

func (s *seen) update(of *statusOf) *seen {
	s.oldReset, s.oldRemaining = reset(of), of.GetLimitRemaining()
	return s
}

// remember notes the descriptors that a denied request has charged in the old service only: it counts all hits of a
// denied request.
func (j *judge) remember(r *Request, name []string, older answer) {
	if older.GetOverallCode() != over || len(name) == 1 && r.GetHitsAddend() < 2 &&
		r.GetDescriptors()[0].GetHitsAddend().GetValue() < 2 {
		return
	}
	for _, n := range name {
		j.buckets[n].deniedTogether = true
	}
}

// verdict returns the overall code, or the code of an error. An OK of some services is UNKNOWN to others.
func (a answer) verdict() string {
	if a.code != codes.OK {
		return "error " + a.code.String()
	}
	return a.GetOverallCode().String()
}

func statusOrNone(a answer, i int) *statusOf {
	if i >= len(a.GetStatuses()) {
		return nil
	}
	return a.GetStatuses()[i]
}

// reset returns the reset in whole seconds.
func reset(s *statusOf) int64 { return s.GetDurationUntilReset().GetSeconds() }

// limitName returns a limit as text.
func limitName(l *limitOf) string {
	if l == nil {
		return "none"
	}
	return fmt.Sprintf("%d per %s", l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
}

// descriptorName returns a descriptor as text. Values are quoted if they could be mistaken.
func descriptorName(domain string, d *commonv3.RateLimitDescriptor) string {
	entries := make([]string, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = plain(e.GetKey()) + "=" + plain(e.GetValue())
	}
	return plain(domain) + ": " + strings.Join(entries, ",")
}

func plain(text string) string {
	if quoted := strconv.Quote(text); len(quoted) != len(text)+2 || strings.ContainsAny(text, ",;=: ") {
		return quoted
	}
	return text
}

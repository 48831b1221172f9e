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

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/tools/compatibility"
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
	first        time.Time
	oldReset     int64
	oldRemaining uint32
	// windowEnded means that the window of the old service has ended since the first request.
	windowEnded bool
	// deniedTogether means that a denied request has charged the descriptor in the old service only.
	deniedTogether bool
	// limited means that a request with a limit of its own has charged the descriptor in the old service.
	limited bool
}

func newJudge(cfg Config) *judge {
	j := &judge{strict: cfg.Strict, wildcards: map[string]*wildcards{}, buckets: map[string]*seen{}}
	for _, d := range cfg.Domains {
		if j.wildcards[d.Name] == nil {
			j.wildcards[d.Name] = new(wildcards)
		}
		grow(&j.wildcards[d.Name].byFile, d.Descriptors, descriptors.FileOrder)
		grow(&j.wildcards[d.Name].bySpecific, d.Descriptors, descriptors.MostSpecific)
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
	verdict := Difference{Request: number, Subject: strings.Join(name, "; "), What: "verdict",
		Old: older.verdict(), New: newer.verdict()}
	if older.code != codes.OK || newer.code != codes.OK {
		if verdict.Old == verdict.New {
			return nil
		}
		return []Difference{verdict}
	}
	j.remember(r, name, older, newer)
	full := len(older.GetStatuses()) == len(newer.GetStatuses()) && len(older.GetStatuses()) == len(name)
	j.bare = j.bare || len(older.GetStatuses()) == 0 && len(newer.GetStatuses()) > 0
	for i, d := range r.GetDescriptors() {
		s := j.bucket(name[i])
		s.see(statusOrNone(older, i), statusOrNone(newer, i))
		if !full {
			overalls := [2]*statusOf{{Code: older.GetOverallCode()}, {Code: newer.GetOverallCode()}}
			verdict.Row = cmp.Or(verdict.Row, j.explain(r, d, s, overalls[0], overalls[1]))
			continue
		}
		of := older.GetStatuses()[i]
		for _, diff := range j.compareStatus(of, newer.GetStatuses()[i]) {
			diff.Request, diff.Subject = number, name[i]
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
	return found
}

// compareStatus returns the differences of one descriptor, some of them with their row.
func (j *judge) compareStatus(older, newer *statusOf) (found []Difference) {
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
		switch {
		case j.strict:
			row = ""
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
	denies := newer.GetCode() == over && older.GetCode() != over // only the new one
	less := older.GetCode() == newer.GetCode() && newer.GetLimitRemaining() < older.GetLimitRemaining()
	switch {
	case s.windowEnded:
		return compatibility.Algorithm // in strict mode, too: it ended between the two requests
	case j.strict:
		return ""
	case s.limited:
		return compatibility.RequestLimit
	case peek && denies:
		return compatibility.Peek
	case j.wildcards[r.GetDomain()].ambiguous(d):
		return compatibility.Wildcards
	case s.deniedTogether && !denies && !less: // the old service has counted more
		return compatibility.Denied
	}
	return ""
}

// bucket returns what is known of a descriptor.
func (j *judge) bucket(name string) *seen {
	if j.buckets[name] == nil {
		j.buckets[name] = new(seen)
	}
	return j.buckets[name]
}

// see notes when the window of the old service ends.
func (s *seen) see(older, newer *statusOf) {
	limit := newer.GetCurrentLimit()
	window := descriptors.Unit(limit.GetUnit()).Micros() * int64(max(1, limit.GetUnitMultiplier().GetValue()))
	switch {
	case s.first.IsZero():
		s.first = time.Now()
	case older.GetCurrentLimit() != nil && (reset(older) > s.oldReset || older.GetLimitRemaining() > s.oldRemaining),
		window > 0 && time.Since(s.first).Microseconds() >= window:
		s.windowEnded = true
	}
	s.oldReset, s.oldRemaining = reset(older), older.GetLimitRemaining()
}

// remember notes what the old service charges in another way. It charges all descriptors of a denied request. A
// descriptor with a limit of its own shares the count of the same one without.
func (j *judge) remember(r *Request, name []string, older, newer answer) {
	for i, d := range r.GetDescriptors() {
		if d.GetLimit() != nil {
			plain := &commonv3.RateLimitDescriptor{Entries: d.GetEntries()}
			j.bucket(name[i]).limited = true
			j.bucket(descriptorName(r.GetDomain(), plain)).limited = true
		}
	}
	if older.GetOverallCode() != over && newer.GetOverallCode() != over || len(name) == 1 && r.GetHitsAddend() < 2 &&
		r.GetDescriptors()[0].GetHitsAddend().GetValue() < 2 {
		return
	}
	for _, n := range name {
		j.bucket(n).deniedTogether = true
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
	name := plain(domain) + ": " + strings.Join(entries, ",")
	if l := d.GetLimit(); l != nil { // it has a bucket of its own
		name += fmt.Sprintf(" with limit %d per %s", l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
	}
	return name
}

func plain(text string) string {
	if quoted := strconv.Quote(text); len(quoted) != len(text)+2 || strings.ContainsAny(text, ",;=: ") {
		return quoted
	}
	return text
}

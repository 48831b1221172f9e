package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Bucket is what a bucket holds now.
type Bucket struct {
	// Key is the key in the store. Rule is the name of its rule, and Limit that of the limit.
	Key       string `json:"key,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Limit     string `json:"limit"`
	Algorithm string `json:"algorithm"`
	// Calendar is the time zone in which the window begins, "" for windows aligned to 1970.
	Calendar string `json:"calendar,omitempty"`
	// Used is the hits in use, of so many in all. Window, and Reset, the time until all are free again, are in seconds.
	Used     int64   `json:"used"`
	Capacity int64   `json:"capacity"`
	Window   float64 `json:"window"`
	Reset    float64 `json:"reset"`
	// Holds are the live holds, nil for a limit without holds.
	Holds *Holds `json:"holds,omitempty"`
	// Refused means that the bucket counts requests that ext_authz has refused. Replaced means that the limit of a
	// credential is active in its place. Shadow means that a denial would only be counted.
	Refused  bool `json:"refused,omitempty"`
	Replaced bool `json:"replaced,omitempty"`
	Shadow   bool `json:"shadow,omitempty"`
	// Enforced is why a limit with `enforce` is enforced for the request or not.
	Enforced string `json:"enforced,omitempty"`
	// DeniedSince is the first denial of the present run, Denials their number since: zero if the last one was allowed.
	DeniedSince time.Time `json:"denied_since,omitzero"`
	Denials     uint64    `json:"denials,omitempty"`
}

// Asked is a bucket, and what a request would do to it.
type Asked struct {
	Bucket
	// Quota means that quotas deny only together.
	Quota bool `json:"quota,omitempty"`
	// Cost is what the request asks for, and Charge what would be charged. Fits means that this limit allows it. Remaining
	// is what would be left. RetryAfter is in seconds, -1 for a cost that never fits.
	Cost       uint64  `json:"cost"`
	Charge     int64   `json:"charge"`
	Fits       bool    `json:"fits"`
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after,omitempty"`
	// Hold is what the request asks of holds, nil for nothing. DeniedBy is "holds" if only live holds are in the way, or
	// "most" if there are as many as the limit allows.
	Hold     *AskedHold `json:"hold,omitempty"`
	DeniedBy string     `json:"denied_by,omitempty"`
}

// BucketOf returns what a Dry request without a cost has shown of a bucket of a rule.
func BucketOf(l *ratelimit.Located, o *bucket.Outcome) Bucket {
	b := newBucket(l.Limit, l.Limit.Length(o.Decisions[0].ChargedAt))
	b.Key, b.Rule, b.Refused, b.Replaced = l.Take.Key, l.Rule.Name, l.Refused, l.Replaced
	used, holds, at := ratelimit.SeenOf(&l.Take, o, 0)
	b.Used, b.Holds, b.Reset = used, holdsOf(l.Take.Hold, holds, at), seconds(o.Decisions[0].ResetAfter)
	return b
}

func newBucket(l *ratelimit.RuleLimit, window int64) Bucket {
	return Bucket{
		Limit: l.Policy, Algorithm: l.Algorithm.String(), Calendar: l.Calendar.Zone(), Window: seconds(window),
		Capacity: l.Capacity(), Shadow: l.Shadow,
	}
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// askedOf returns the bucket of a limit that a Dry limiter has applied.
func askedOf(rule string, a *ratelimit.Applied) Asked {
	b := Asked{
		Bucket: newBucket(a.Limit, a.Window()), Quota: a.Quota, Cost: a.Cost, Fits: a.Decision.Allowed,
		Remaining: a.Decision.Remaining, RetryAfter: seconds(a.Decision.RetryAfter),
	}
	if a.Decision.RetryAfter < 0 {
		b.RetryAfter = -1
	}
	b.Rule, b.Reset = rule, seconds(a.Decision.ResetAfter)
	if s := a.Bucket; s != nil {
		b.Key, b.Used, b.Capacity, b.Charge = s.Key, s.Used, s.Capacity, s.Charge
		b.DeniedSince, b.Denials, b.Holds = s.DeniedSince, s.Denials, holdsOf(a.Limit.Hold, s.Holds, s.At)
		b.askHold(a)
	}
	return b
}

func (b *Asked) text() string {
	kind := b.Algorithm
	if b.Window > 0 { // one of concurrency has none
		kind += ", " + strconv.FormatFloat(b.Window, 'f', -1, 64) + " s"
	}
	if b.Calendar != "" {
		kind += " in " + b.Calendar
	}
	parts := suggest.Parts{b.usage() + " (" + kind + ")", b.asks(), fmt.Sprintf("charges %d", b.Charge)}
	parts.Add(b.Shadow && b.Enforced == "", "in shadow")
	parts.Add(b.Enforced != "", "%s", b.Enforced)
	parts.Add(b.Denials > 0 && !b.Fits, "%s", b.denied())
	parts.Add(b.Quota, "a quota")
	return b.Limit + ": " + strings.Join(parts, ", ")
}

func (b *Bucket) denied() string {
	return fmt.Sprintf("denied since %s (%d)", b.DeniedSince.Format(time.RFC3339), b.Denials)
}

// Rows returns the bucket as a row of a table (limit, usage, reset, and key) and a row for each of its holds.
func (b *Bucket) Rows() [][]string {
	kind := ""
	switch {
	case b.Refused:
		kind = " (refused requests)"
	case b.Replaced:
		kind = " (replaced by the limit of the key)"
	case b.Shadow:
		kind = " (in shadow)"
	}
	reset := "full quota"
	switch {
	case b.Used > 0:
		reset = "reset in " + whole(b.Reset)
	case b.Units() > 0:
		reset = "nothing used"
	}
	if b.Denials > 0 {
		reset += ", " + b.denied()
	}
	return append([][]string{{b.Limit + kind, b.usage(), reset, fmt.Sprintf("%q", b.Key)}}, b.Holds.rows()...)
}

package inspect

import (
	"fmt"
	"math"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Bucket is what a bucket holds, and what a request would do to it.
type Bucket struct {
	// Key is the key in the store. Limit is the name of the limit.
	Key       string `json:"key,omitempty"`
	Limit     string `json:"limit"`
	Algorithm string `json:"algorithm"`
	// Used is the hits in use now, of so many in all. Window is in seconds.
	Used     int64   `json:"used"`
	Capacity int64   `json:"capacity"`
	Window   float64 `json:"window"`
	// Shadow means that a denial would only be counted, Quota that quotas deny only together.
	Shadow bool `json:"shadow,omitempty"`
	Quota  bool `json:"quota,omitempty"`
	// Cost is what the request asks for, and Charge what would be charged. Fits means that this limit allows it. Remaining
	// is what would be left. RetryAfter is in seconds, -1 for a cost that never fits.
	Cost       uint64  `json:"cost"`
	Charge     int64   `json:"charge"`
	Fits       bool    `json:"fits"`
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after,omitempty"`
}

// bucketOf returns the bucket of a limit that a Dry limiter has applied.
func bucketOf(a *ratelimit.Applied) Bucket {
	b := Bucket{
		Limit: a.Limit.Policy, Algorithm: a.Limit.Algorithm.String(), Window: float64(a.Limit.Window) / 1e6,
		Capacity: a.Limit.Capacity(), Shadow: a.Shadow, Quota: a.Quota,
		Cost: a.Cost, Fits: a.Decision.Allowed, Remaining: a.Decision.Remaining,
		RetryAfter: float64(a.Decision.RetryAfter) / 1e6,
	}
	if a.Decision.RetryAfter < 0 {
		b.RetryAfter = -1
	}
	if s := a.Bucket; s != nil {
		b.Key, b.Used, b.Capacity, b.Charge = s.Key, s.Used, s.Capacity, s.Charge
	}
	return b
}

func (b *Bucket) text() string {
	verdict := "fits"
	switch {
	case b.Fits:
	case b.RetryAfter < 0:
		verdict = "never fits"
	default:
		verdict = fmt.Sprintf("denied, fits in %.0f s", math.Ceil(b.RetryAfter))
	}
	parts := []string{fmt.Sprintf("%d of %d used (%s, %g s)", b.Used, b.Capacity, b.Algorithm, b.Window),
		fmt.Sprintf("costs %d: %s", b.Cost, verdict), fmt.Sprintf("charges %d", b.Charge)}
	if b.Shadow {
		parts = append(parts, "in shadow")
	}
	if b.Quota {
		parts = append(parts, "a quota")
	}
	return b.Limit + ": " + strings.Join(parts, ", ")
}

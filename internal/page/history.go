package page

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const (
	minutes  = 60   // of a rule that are kept
	maxRules = 1000 // that are kept: 1,600 bytes each
)

// counted is what a rule has counted in the last hour. The minutes are a ring.
type counted struct {
	until   ratelimit.Sum // at the last Tick
	minutes [minutes]ratelimit.Sum
}

// History has the last hour of the first 1,000 rules, by the minute. It is ready to use, and safe for concurrent use.
type History struct {
	// Shadow means that SHADOW_MODE lets all requests pass.
	Shadow bool

	mu    sync.Mutex
	slot  int // of the last minute
	at    time.Time
	took  time.Duration
	rules map[[2]string]*counted // by domain and Rule.Name
}

// Run calls Tick once a minute until ctx is done. Call Tick before the first request, so that it counts.
func (h *History) Run(ctx context.Context, rules func() *ratelimit.Rules) {
	poll.Every(ctx, time.Minute, func() { h.Tick(rules(), time.Now()) })
}

// Tick ends a minute. A rule is counted from the first Tick that sees it.
func (h *History) Tick(rules *ratelimit.Rules, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rules != nil {
		h.took = now.Sub(h.at)
	}
	h.slot, h.at = (h.slot+1)%minutes, now
	next := make(map[[2]string]*counted)
	all := rules.All()
	for _, r := range all[:min(len(all), maxRules)] {
		name, sum := [2]string{r.Domain, r.Name}, h.sum(r)
		if next[name] != nil { // strict mode allows rules of one name
			continue
		}
		c := cmp.Or(h.rules[name], &counted{until: sum})
		c.minutes[h.slot], c.until, next[name] = since(c.until, sum), sum, c
	}
	h.rules = next
}

// sum returns what a rule has counted since the start.
func (h *History) sum(r *ratelimit.Rule) ratelimit.Sum {
	sum := r.Sum()
	if h.Shadow {
		sum.Denied, sum.ShadowDenied = 0, sum.Denied+sum.ShadowDenied
	}
	return sum
}

// since returns what was counted between two sums. The counters of a rule start again if its labels change.
func since(before, now ratelimit.Sum) ratelimit.Sum {
	if now.Requests < before.Requests || now.Denied < before.Denied || now.ShadowDenied < before.ShadowDenied {
		return now
	}
	return ratelimit.Sum{
		Requests: now.Requests - before.Requests, Denied: now.Denied - before.Denied,
		ShadowDenied: now.ShadowDenied - before.ShadowDenied,
	}
}

// Of returns what a rule has counted, nil for one that is not kept or unlimited, which counts nothing.
func (h *History) Of(r *ratelimit.Rule, now time.Time) *Activity {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.rules[[2]string{r.Domain, r.Name}]
	if c == nil || r.Unlimited {
		return nil
	}
	current := since(c.until, h.sum(r))
	a := &Activity{Rate: float64(c.minutes[h.slot].Requests+current.Requests) / max(1, (now.Sub(h.at)+h.took).Seconds())}
	for i := range minutes - 1 {
		a.minutes[i] = c.minutes[(h.slot+2+i)%minutes]
	}
	a.minutes[minutes-1] = current
	for _, m := range a.minutes {
		a.Requests += m.Requests
		a.Denied += m.Denied
		a.ShadowDenied += m.ShadowDenied
	}
	return a
}

// Activity is what a rule has counted in the last hour: 59 minutes and the present one.
type Activity struct {
	ratelimit.Sum
	Rate    float64                // in requests a second, in the last minute and the present one
	minutes [minutes]ratelimit.Sum // the oldest first
}

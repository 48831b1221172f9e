package page

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const (
	minutes  = 60   // of a rule that are kept
	maxRules = 1000 // that are kept: 800 bytes each
)

// minute is what a rule has counted in a minute.
type minute struct{ requests, denied, shadowDenied uint32 }

// counted is what a rule has counted in the last hour. The minutes are a ring.
type counted struct {
	until   ratelimit.Sum // at the last Tick
	minutes [minutes]minute
}

// name names a rule: its domain and Rule.Name.
type name [2]string

func nameOf(r *ratelimit.Rule) name { return name{r.Domain, r.Name} }

// History has the last hour of the first 1,000 rules, by the minute. The zero value is empty. It is safe for concurrent
// use.
type History struct {
	mu    sync.Mutex
	slot  int // of the last minute
	at    time.Time
	took  time.Duration
	rules map[name]*counted
}

// Run calls Tick once a minute until ctx is done.
func (h *History) Run(ctx context.Context, rules func() *ratelimit.Rules) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		h.Tick(rules(), time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Tick ends a minute. A rule is counted from the first Tick that sees it.
func (h *History) Tick(rules *ratelimit.Rules, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rules != nil {
		h.took = now.Sub(h.at)
	}
	h.slot, h.at = (h.slot+1)%minutes, now
	next := make(map[name]*counted)
	all := rules.All()
	for _, r := range all[:min(len(all), maxRules)] {
		if next[nameOf(r)] != nil { // strict mode allows rules of one name
			continue
		}
		sum, c := r.Sum(), h.rules[nameOf(r)]
		if c == nil {
			c = &counted{until: sum}
		}
		c.minutes[h.slot] = since(c.until, sum)
		c.until = sum
		next[nameOf(r)] = c
	}
	h.rules = next
}

// since returns what was counted between two sums. The counters of a rule start again if its labels change.
func since(before, now ratelimit.Sum) minute {
	if now.Requests < before.Requests || now.Denied < before.Denied || now.ShadowDenied < before.ShadowDenied {
		before = ratelimit.Sum{}
	}
	fit := func(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
	return minute{
		fit(now.Requests - before.Requests), fit(now.Denied - before.Denied), fit(now.ShadowDenied - before.ShadowDenied),
	}
}

// Of returns what a rule has counted, nil for one that is not kept or unlimited, which counts nothing.
func (h *History) Of(r *ratelimit.Rule, now time.Time) *Activity {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.rules[nameOf(r)]
	if c == nil || r.Unlimited {
		return nil
	}
	current := since(c.until, r.Sum())
	a := &Activity{Rate: float64(c.minutes[h.slot].requests) + float64(current.requests)}
	a.Rate /= max(1, (now.Sub(h.at) + h.took).Seconds())
	for i := range minutes - 1 {
		a.minutes[i] = c.minutes[(h.slot+2+i)%minutes]
	}
	a.minutes[minutes-1] = current
	for _, m := range a.minutes {
		a.Requests += uint64(m.requests)
		a.Denied += uint64(m.denied)
		a.ShadowDenied += uint64(m.shadowDenied)
	}
	return a
}

// Activity is what a rule has counted in the last hour: 59 minutes and the present one.
type Activity struct {
	// Rate is in requests a second, in the last minute and the present one.
	Rate                           float64
	Requests, Denied, ShadowDenied uint64
	minutes                        [minutes]minute // the oldest first
}

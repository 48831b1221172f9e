package ratelimit

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// HoldTerms is `hold:`. Units of a limit with it can be reserved under an id and settled later: see bucket.Hold.
type HoldTerms struct {
	TTL    time.Duration `yaml:"ttl" doc:"How long a hold lives that nothing settles, 1ms to 168h: longer than the longest request." required:"true" example:"10m"`
	Expiry HoldExpiry    `yaml:"expiry" doc:"What becomes of its units then." default:"charge; release for concurrency"`
	Most   int64         `yaml:"most" doc:"How many holds a bucket can have. With Redis, a request that finds an expired hold reads all holds of the bucket, and other requests wait meanwhile: more than 1,000 are for memory." default:"1000" min:"1" max:"10000"`
}

const (
	// leastTTL and mostTTL bound HoldTerms.TTL. A bucket can be full of holds that nothing settles for all that time. With
	// it, expiries stay far below 2^53 µs.
	leastTTL, mostTTL = time.Millisecond, 7 * 24 * time.Hour
	// shortTTL is the time below which a TTL is reported as short for a request.
	shortTTL             = time.Second
	usualHolds, maxHolds = 1_000, 10_000
)

// HoldExpiry is what becomes of the units of a hold that expires.
type HoldExpiry uint8

// ExpiryCharge charges the units, ExpiryRelease drops them.
const (
	ExpiryCharge HoldExpiry = iota + 1
	ExpiryRelease
)

// String returns the name used in rule files.
func (e HoldExpiry) String() string {
	return [...]string{"unset", ExpiryCharge: "charge", ExpiryRelease: "release"}[e]
}

// Words lists the texts that UnmarshalText accepts.
func (HoldExpiry) Words() []string { return []string{"charge", "release"} }

// UnmarshalText accepts the name of an expiry.
func (e *HoldExpiry) UnmarshalText(text []byte) (err error) {
	*e, err = suggest.Value(text, e.Words(), ExpiryCharge, ExpiryRelease)
	return err
}

// hold returns the terms of the holds of a limit. It is nil for a limit without holds, and for terms that Check
// reports.
func (l *Limit) hold() *bucket.Hold {
	h := l.Hold
	if h == nil || h.TTL < leastTTL || h.TTL > mostTTL || h.Most < 0 || h.Most > maxHolds {
		return nil
	}
	return &bucket.Hold{
		TTL: h.TTL.Microseconds(), Most: cmp.Or(h.Most, usualHolds),
		Release: h.Expiry == ExpiryRelease || l.Algorithm.Windowless(),
	}
}

// checkHold reports mistakes in `hold` and in a limit of concurrency.
func (c *checker) checkHold(l *Limit, limitAt string) {
	if l.Algorithm.Windowless() {
		c.checkConcurrency(l, limitAt)
	}
	h, at := l.Hold, limitAt+".hold"
	if h == nil {
		return
	}
	for _, other := range []struct {
		name string
		set  bool
		why  string
	}{
		{"override", l.Override != nil, "a limit that replaces this one would have no holds"},
		{"lease", l.Lease != 0, "each hold needs a decision of its own"},
		{"max_delay", l.MaxDelay != 0, "a hold begins when it is decided, and does not wait"},
	} {
		if other.set {
			c.Key(limitAt+"."+other.name, at).Fail(
				suggest.Quoted(other.name)+" beside `hold`", other.why+": delete one of them")
		}
	}
	switch ttl := c.At(at + ".ttl"); {
	case h.TTL == 0:
		c.At(at, at+".ttl").Lacking().Fail("`hold` without `ttl`",
			"add `ttl: 10m`, a time longer than the longest request: a hold that nothing settles ends after it")
	case h.TTL < leastTTL, h.TTL > mostTTL:
		ttl.Fail("`ttl` cannot be "+suggest.Quoted(h.TTL.String()), "want `1ms` to `168h`")
	case h.TTL < shortTTL:
		ttl.Warn(fmt.Sprintf("a `ttl` of %s is short", h.TTL),
			"a hold ends after it, also while its request runs: want more than the longest request takes")
	}
	if c.checkAtLeast(h.Most, 1, at+".most"); h.Most > maxHolds {
		c.At(at+".most").Fail(fmt.Sprintf("`most` cannot be `%d`", h.Most), fmt.Sprintf("want at most %d", maxHolds))
	}
}

// checkConcurrency reports what has no meaning in a limit of concurrency.
func (c *checker) checkConcurrency(l *Limit, at string) {
	for _, other := range []struct {
		name string
		set  bool
	}{
		{"unit", l.Unit != 0}, {"unit_multiplier", l.Multiplier != 0},
		{"calendar", l.Calendar != nil}, {"burst", l.Burst != 0},
	} {
		if other.set {
			c.Key(at+"."+other.name, at+".algorithm").Fail(suggest.Quoted(other.name)+" has no meaning for concurrency",
				"it limits what is held at once, without a window: delete "+suggest.Quoted(other.name))
		}
	}
	switch {
	case l.Hold == nil:
		c.At(at+".algorithm", at+".hold").Fail("`algorithm: concurrency` without `hold`",
			"add `hold: {ttl: 10m}`, with a time longer than the longest request: it frees what a vanished caller holds")
	case l.Hold.Expiry == ExpiryCharge:
		c.At(at+".hold.expiry", at+".algorithm").Fail("`expiry: charge` has no meaning for concurrency",
			"nothing is charged, so that expiry always releases: delete `expiry`")
	case l.Requests != nil && *l.Requests > cmp.Or(l.Hold.Most, usualHolds):
		c.At(at+".requests_per_unit").Warn("`most` allows fewer holds at once", "raise `most` in `hold`: 1000 is its default")
	}
	if p := l.Problem; p != nil && strings.Contains(p.Title+p.Detail, "{window}") {
		c.At(at+".problem", at+".problem.title", at+".problem.detail", at+".algorithm").Fail(
			"`{window}` has no meaning for concurrency", "write {retry_after}, {limit} or {policy}")
	}
	if l.CountDenied != nil {
		c.Key(at+".count_denied", at+".algorithm").Warn("`count_denied` has no effect for concurrency",
			"a denied request holds nothing: delete `count_denied`")
	}
	if c.policy != 0 && !c.strict && cmp.Or(l.OnStoreError, c.policy) == Local {
		c.At(at, at+".on_store_error", at+".algorithm").Warn(
			"without Redis, `on_store_error: local` lets each replica hold as many as the limit",
			"with several replicas, write `on_store_error: deny` or `allow`")
	}
}

// checkHolds reports limits of one node of which only some have `hold`: an entry for a hold would mean two things.
func (c *checker) checkHolds(limits []Limit, at string) {
	holds := func(l Limit) bool { return l.Hold != nil }
	if !slices.ContainsFunc(limits, holds) {
		return
	}
	for i := range limits {
		if at := Element(at, i); !holds(limits[i]) && !limits[i].Algorithm.Windowless() && !limits[i].Unlimited {
			c.At(at, at+".hold", at+".algorithm").Lacking().Fail("a limit without `hold` beside one with it",
				"of several limits of one descriptor, all have `hold` or none: "+
					"add `hold: {ttl: 10m}`, or write a descriptor of its own")
		}
	}
}

// asksHold reports whether the last of the entries asks for a hold, if the rule for the others has holds.
func asksHold(entries []descriptors.Entry) bool {
	return len(entries) > 0 && descriptors.OfHold(entries[len(entries)-1].Key)
}

// find returns the rule that entries match, nil for none. holds is 1 if the rule has holds or is unlimited, and matches
// without the last entry, which asks for a hold, else 0.
func find(tree *descriptors.Tree[position], entries []descriptors.Entry) (rule *Rule, holds int) {
	if asksHold(entries) {
		node := tree.Find(entries[:len(entries)-1])
		if node != nil && node.Value.rule != nil && (node.Value.rule.holds || node.Value.rule.Unlimited) {
			return node.Value.rule, 1
		}
	}
	if node := tree.Find(entries); node != nil {
		rule = node.Value.rule
	}
	return rule, 0
}

// findHeld returns the rule of a descriptor that asks for a hold. holds is as for find. A descriptor that brings its
// own limit loses its entry for a hold.
func (p *Plan) findHeld(tree *descriptors.Tree[position], d *descriptors.Descriptor) (rule *Rule, holds int) {
	if d.Limit != nil {
		rule, _ = find(tree, d.Entries[:len(d.Entries)-1])
		return rule, 1
	}
	if rule, holds = find(tree, d.Entries); holds > 0 && d.Negative && !p.limiter.dry {
		p.limiter.totals.NegativeHolds.Add(1)
	}
	return rule, holds
}

// askHold makes an empty take what the last entry of a descriptor asks of the holds of a limit. A reserve without an id
// gets one that no other has, so that it ends by its ttl. A settlement without an id finds no hold.
func (p *Plan) askHold(t *bucket.Take, d *descriptors.Descriptor, a *appliedLimit) {
	e, cost := &d.Entries[len(d.Entries)-1], bucket.HoldCost{Cost: p.hits(d)}
	sum := sha256.Sum256([]byte(e.Value))
	copy(cost.ID[:], sum[:])
	one := &struct {
		hold bucket.Hold
		cost [1]bucket.HoldCost
	}{hold: *a.limit.Hold}
	t.Hold = &one.hold
	if e.Key == descriptors.HoldSettle {
		one.hold.Settles = one.cost[:]
	} else {
		if e.Value == "" {
			_, _ = rand.Read(cost.ID[:]) // it never fails
		}
		if cost.Cost == 0 && !p.limiter.cfg.Strict {
			t.Need = 1
		}
		one.hold.Reserves = one.cost[:]
	}
	one.cost[0], a.hold = cost, &one.hold
}

// Settles reports whether the limit was asked to settle a hold. A settlement never is over the limit.
func (a *Applied) Settles() bool { return a.Hold != nil && len(a.Hold.Settles) > 0 }

// countHolds counts the holds that the decision on a limit has ended. Of several limits with one take, the first
// counts.
func (p *Plan) countHolds(i int, applied *Applied) {
	a, held := &p.limits[i], applied.Decision.Held
	same := func(other appliedLimit) bool { return other.cached == 0 && other.take == a.take }
	if !slices.ContainsFunc(p.limits[:i], same) {
		c, _ := p.countersOf(a)
		if !c.holds.Load() {
			c.holds.Store(true)
		}
		c.Settled.Add(uint64(held.Settled))
		c.Unknown.Add(uint64(held.Unknown))
		c.Expired.Add(uint64(held.Expired))
	}
}

// EachHolds calls f for each limit with holds, with their sum, those of refused requests included. read returns the
// sums by Take.Rule. It is called if there is such a limit.
func (r *Rules) EachHolds(read func() map[uint64]bucket.SomeHolds, f func(*Rule, *RuleLimit, bucket.SomeHolds)) {
	var sums map[uint64]bucket.SomeHolds
	for _, rule := range r.All() {
		for i := range rule.Limits {
			if l := &rule.Limits[i]; l.Hold != nil {
				if sums == nil {
					sums = read()
				}
				f(rule, l, sums[l.rule].Plus(sums[^l.rule]))
			}
		}
	}
}

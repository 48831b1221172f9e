package bucket_test

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"sort"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// model decides requests from the definitions of docs/algorithms.md and of holds alone. Usage is an exact fraction from
// the charges, holds are a list, and each wait is found by a search. It shares no formula with the code, and is fast
// enough only for small numbers.
type model struct {
	buckets map[string]*modelBucket
	holds   int // that were ever reserved
}

// modelBucket is a bucket as of its last write.
type modelBucket struct {
	last    int64
	charges []bucket.Grant // of the window algorithms, oldest first
	debt    *big.Rat       // of the bucket algorithms: the µs until it is empty
	rate    int64          // of the limit under which the debt was written
	holds   []modelHold
}

type modelHold struct {
	bucket.HoldCost

	number int // in the order of the reserves
}

func newModel() *model { return &model{buckets: map[string]*modelBucket{}} }

func sum(charges []bucket.Grant) (units int64) {
	for _, c := range charges {
		units += c.Cost
	}
	return units
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// perUnit is the time in which a unit leaks.
func perUnit(l *bucket.Limit) *big.Rat { return big.NewRat(l.Window, l.Requests) }

func (b *modelBucket) empty() bool { return sum(b.charges) == 0 && b.debt.Sign() == 0 }

// at returns the bucket as it is at the time x, without its holds. Nothing else happens until then.
func (b *modelBucket) at(l *bucket.Limit, x int64) *modelBucket {
	c := &modelBucket{last: x, debt: new(big.Rat).Set(b.debt), rate: l.Requests}
	for _, g := range b.charges {
		var counts bool
		switch age := x/max(l.Window, 1) - g.At/max(l.Window, 1); l.Algorithm {
		case bucket.FixedWindow:
			counts = age == 0
		case bucket.SlidingWindowCounter:
			counts = age <= 1
		case bucket.SlidingWindowLog:
			counts = g.At > x-l.Window
		}
		if counts {
			c.charges = append(c.charges, g)
		}
	}
	if b.rate != l.Requests && !c.debt.IsInt() { // rounded up in the time of the bucket
		whole := new(big.Int).Quo(c.debt.Num(), c.debt.Denom())
		c.debt.SetInt(whole.Add(whole, big.NewInt(1)))
	}
	if c.debt.Sub(c.debt, rat(max(0, x-b.last))); c.debt.Sign() < 0 {
		c.debt = new(big.Rat)
	}
	return c
}

// used is what is used at the time of the last write.
func (b *modelBucket) used(l *bucket.Limit) *big.Rat {
	switch l.Algorithm {
	case bucket.SlidingWindowCounter:
		used := new(big.Rat)
		for _, g := range b.charges {
			if g.At/l.Window == b.last/l.Window {
				used.Add(used, rat(g.Cost))
			} else {
				used.Add(used, big.NewRat(g.Cost*(l.Window-b.last%l.Window), l.Window))
			}
		}
		return used
	case bucket.TokenBucket, bucket.LeakyBucket:
		return new(big.Rat).Quo(b.debt, perUnit(l))
	default:
		return rat(sum(b.charges))
	}
}

// fits reports whether that many units fit at a time, beside those that are held.
func (b *modelBucket) fits(l *bucket.Limit, x, units int64) bool {
	used := b.at(l, x).used(l)
	return used.Add(used, rat(units)).Cmp(rat(l.Capacity())) <= 0
}

// write brings the bucket to a time for good.
func (b *modelBucket) write(l *bucket.Limit, x int64) {
	c := b.at(l, x)
	c.holds = b.holds
	*b = *c
}

// charge charges units, up to twice the capacity. A log keeps one unit more than its limit.
func (b *modelBucket) charge(l *bucket.Limit, x, units int64) {
	b.write(l, x)
	units = min(units, 2*l.Capacity()+1)
	switch l.Algorithm {
	case bucket.Concurrency:
	case bucket.TokenBucket, bucket.LeakyBucket:
		after := new(big.Rat).Add(b.debt, new(big.Rat).Mul(rat(units), perUnit(l)))
		if most := new(big.Rat).Mul(rat(2*l.Burst), perUnit(l)); after.Cmp(most) > 0 {
			after = most
		}
		if after.Cmp(b.debt) > 0 {
			b.debt = after
		}
	case bucket.SlidingWindowLog:
		most := max(l.Requests+1, sum(b.charges))
		b.charges = append(b.charges, bucket.Grant{At: x, Cost: units})
		for sum(b.charges) > most {
			if b.charges[0].Cost--; b.charges[0].Cost == 0 {
				b.charges = b.charges[1:]
			}
		}
	default:
		window := int64(0)
		for _, g := range b.charges {
			if g.At/l.Window == x/l.Window {
				window += g.Cost
			}
		}
		if units = min(units, 2*l.Requests-window); units > 0 {
			b.charges = append(b.charges, bucket.Grant{At: x, Cost: units})
		}
	}
}

// refund gives units back, the newest first.
func (b *modelBucket) refund(l *bucket.Limit, x int64, units uint64) {
	b.write(l, x)
	back := int64(min(units, math.MaxInt32))
	if b.debt.Sub(b.debt, new(big.Rat).Mul(rat(back), perUnit(l))); b.debt.Sign() < 0 {
		b.debt = new(big.Rat)
	}
	for i := len(b.charges) - 1; i >= 0; i-- {
		cut := min(back, b.charges[i].Cost)
		b.charges[i].Cost, back = b.charges[i].Cost-cut, back-cut
	}
	b.charges = slices.DeleteFunc(b.charges, func(g bucket.Grant) bool { return g.Cost == 0 })
}

// time returns the time of the bucket. A large step back of the clock takes the bucket with it.
func (b *modelBucket) time(l *bucket.Limit, now int64) int64 {
	back := b.last - now
	switch {
	case b.empty():
		b.last = now
	case back > 2_000_000:
		for i, g := range b.charges {
			switch {
			case l.Algorithm == bucket.SlidingWindowLog:
				b.charges[i].At -= back
			case g.At/l.Window == b.last/l.Window:
				b.charges[i].At = now
			default:
				b.charges[i].At = now - l.Window
			}
		}
		b.last = now
	}
	return max(b.last, now)
}

func (b *modelBucket) held() (units int64) {
	for _, h := range b.holds {
		units += int64(h.Cost)
	}
	return units
}

// end ends a hold.
func (b *modelBucket) end(which func(h modelHold) bool) (ended modelHold, ok bool) {
	slices.SortFunc(b.holds, func(a, b modelHold) int {
		return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.number, b.number))
	})
	i := slices.IndexFunc(b.holds, which)
	if i < 0 {
		return ended, false
	}
	ended = b.holds[i]
	b.holds = slices.Delete(b.holds, i, i+1)
	return ended, true
}

// merged returns the takes of a request, each bucket once.
func merged(takes []bucket.Take) (all []bucket.Take) {
	for _, t := range takes {
		i := slices.IndexFunc(all, func(o bucket.Take) bool { return o.Key == t.Key })
		if i < 0 {
			if t.Hold != nil {
				h := *t.Hold
				t.Hold = &h
			}
			all = append(all, t)
			continue
		}
		o := &all[i]
		o.Cost, o.Refund, o.Need = add(o.Cost, t.Cost), add(o.Refund, t.Refund), max(o.Need, t.Need)
		o.CountDenied = o.CountDenied || t.CountDenied
		if t.Hold == nil {
			continue
		}
		o.Hold.Reserves = slices.Concat(o.Hold.Reserves, t.Hold.Reserves)
		settles := slices.Clone(o.Hold.Settles)
		for _, s := range t.Hold.Settles {
			k := slices.IndexFunc(settles, func(o bucket.HoldCost) bool {
				return o.ID == s.ID && o.Expires == 0 && s.Expires == 0
			})
			if k < 0 {
				settles = append(settles, s)
			} else {
				settles[k].Cost = add(settles[k].Cost, s.Cost)
			}
		}
		o.Hold.Settles = settles
	}
	return all
}

// add adds costs. All sums beyond all limits mean the same.
func add(a, b uint64) uint64 { return min(a, 1<<40) + min(b, 1<<40) }

// judged is a take on its way through a decision.
type judged struct {
	*bucket.Take
	bucket       *modelBucket
	x            int64
	need, number int64 // the room that it needs, and how many holds it adds
	d            bucket.Decision
}

func (m *model) decide(at int64, takes []bucket.Take) (o bucket.Outcome) {
	var all []*judged
	for _, t := range merged(takes) {
		j := &judged{Take: &t, bucket: m.buckets[t.Key]}
		if j.bucket == nil {
			j.bucket = &modelBucket{debt: new(big.Rat), rate: t.Limit.Requests}
			m.buckets[t.Key] = j.bucket
		}
		j.judge(at)
		all = append(all, j)
	}
	quotas, over := 0, 0
	o.Allowed = true
	for _, j := range all {
		switch {
		case j.Role == bucket.Enforce && !j.d.Allowed:
			o.Allowed = false
		case j.Role == bucket.Quota:
			if quotas++; !j.d.Allowed {
				over++
			}
		}
	}
	o.Allowed = o.Allowed && (quotas == 0 || over < quotas)
	shortest := int64(math.MaxInt64)
	longer := func(wait int64) {
		if o.RetryAfter >= 0 && (wait < 0 || wait > o.RetryAfter) {
			o.RetryAfter = wait
		}
	}
	for _, j := range all {
		m.carryOut(j, o.Allowed)
		j.describe(at)
		o.Decisions = append(o.Decisions, j.d)
		wait := j.wait(at)
		if j.d.Allowed && !j.CountDenied {
			wait = 0
		}
		switch j.Role {
		case bucket.Enforce:
			longer(wait)
		case bucket.Quota:
			if wait < 0 {
				wait = math.MaxInt64
			}
			shortest = min(shortest, wait)
		case bucket.Shadow:
		}
	}
	switch {
	case o.Allowed:
		o.RetryAfter = 0
	case quotas > 0 && shortest == math.MaxInt64:
		longer(bucket.Never)
	case quotas > 0:
		longer(shortest)
	}
	return o
}

// end carries out the settlements and undos of holds that ended before the request, or the other settlements.
func (j *judged) end(before bool) {
	for _, s := range j.Hold.Settles {
		if before != (s.Expires != 0) {
			continue
		}
		_, ok := j.bucket.end(func(h modelHold) bool { return h.ID == s.ID && (s.Expires <= 0 || s.Expires == h.Expires) })
		switch {
		case ok:
			j.d.Held.Settled++
		case !before:
			j.d.Held.Unknown++
		}
		if !before && s.Cost > 0 && j.Limit.Algorithm != bucket.Concurrency {
			j.bucket.charge(&j.Limit, j.x, int64(min(s.Cost, 1<<40)))
		}
	}
}

// judge undoes, ends what has expired, gives back, settles, and decides the take alone.
func (j *judged) judge(now int64) {
	l, b := &j.Limit, j.bucket
	room := min(j.Cost, 1<<40)
	if j.Hold != nil {
		j.d.Held = &bucket.Held{}
		for _, r := range j.Hold.Reserves {
			if r.Cost > 0 {
				room, j.number = add(room, r.Cost), j.number+1
			}
		}
	}
	j.need = int64(min(max(room, j.Need), 1<<50))
	if l.Requests == 0 {
		j.d.Allowed = j.need == 0
		return
	}
	last := b.last
	if j.x = b.time(l, now); b.last < last && j.Hold == nil {
		// Such a step writes the bucket, so another rate rounds its debt up. A take with holds writes it as it was.
		b.debt, b.rate = b.at(l, b.last).debt, l.Requests
	}
	if j.Hold != nil {
		j.end(true)
		for i := range b.holds {
			b.holds[i].Expires = min(b.holds[i].Expires, j.x+j.Hold.TTL)
		}
		for {
			h, ok := b.end(func(h modelHold) bool { return h.Expires <= j.x })
			if !ok {
				break
			}
			j.d.Held.Expired++
			if !j.Hold.Release && l.Algorithm != bucket.Concurrency {
				charged := h.Expires
				if !b.empty() {
					charged = max(charged, b.last)
				} else {
					b.last = charged
				}
				b.charge(l, charged, int64(h.Cost))
			}
		}
	}
	if j.Refund > 0 && !b.at(l, j.x).empty() {
		b.refund(l, j.x, j.Refund)
	}
	if j.Hold != nil {
		j.end(false)
	}
	givesOnly := j.need == 0 && (j.Refund > 0 || j.Hold != nil && len(j.Hold.Settles) > 0 && len(j.Hold.Reserves) == 0)
	j.d.Allowed = givesOnly || b.fits(l, j.x, j.need+b.held()) && !j.tooMany()
}

func (j *judged) tooMany() bool {
	return j.number > 0 && int64(len(j.bucket.holds))+j.number > j.Hold.Most
}

// carryOut charges and reserves.
func (m *model) carryOut(j *judged, allowed bool) {
	if j.Limit.Requests == 0 {
		return
	}
	var charged bool
	switch {
	case j.Role == bucket.Shadow:
		charged = j.d.Allowed || j.CountDenied
	case allowed:
		charged = j.d.Allowed
	default:
		charged = j.CountDenied
	}
	if charged && j.Cost > 0 {
		j.bucket.charge(&j.Limit, j.x, int64(min(j.Cost, 1<<40)))
	}
	if j.Hold == nil || !j.d.Allowed || !allowed && j.Role != bucket.Shadow {
		return
	}
	for _, r := range j.Hold.Reserves {
		if r.Cost > 0 {
			r.Expires = j.x + j.Hold.TTL
			m.holds++
			j.bucket.holds = append(j.bucket.holds, modelHold{r, m.holds})
			j.d.Held.Until = r.Expires
		}
	}
}

// later returns the bucket time in a while.
func (j *judged) later(now, wait int64) int64 {
	if j.bucket.at(&j.Limit, j.x).empty() {
		return now + wait
	}
	return max(j.x, now+wait)
}

// until returns the least wait after which something is true, which then stays true.
func until(is func(wait int64) bool) int64 {
	most := 1
	for !is(int64(most - 1)) {
		most *= 4
	}
	return int64(sort.Search(most-1, func(n int) bool { return is(int64(n)) }))
}

// wait returns the retry after of the take, after the decision.
func (j *judged) wait(now int64) int64 {
	l, b := &j.Limit, j.bucket
	givesOnly := j.need == 0 && (j.Refund > 0 || j.Hold != nil && len(j.Hold.Settles) > 0 && len(j.Hold.Reserves) == 0)
	switch {
	case givesOnly:
		return 0
	case j.need > l.Capacity():
		return bucket.Never
	case l.Requests == 0, b.fits(l, j.later(now, 0), j.need+b.held()) && !j.tooMany():
		return 0
	}
	wait := until(func(wait int64) bool { return b.fits(l, j.later(now, wait), j.need) })
	if len(b.holds) > 0 || j.tooMany() {
		wait = max(wait, 1_000_000)
	}
	return wait
}

// expireHolds returns when the bucket is empty if all holds expire, 0 for none.
func (j *judged) expireHolds() (at int64) {
	l, b := &j.Limit, j.bucket.at(&j.Limit, j.x)
	if j.bucket.at(l, j.later(j.x, 0)).empty() {
		b.charges, b.debt = nil, new(big.Rat)
	}
	b.holds = slices.Clone(j.bucket.holds)
	for {
		h, ok := b.end(func(modelHold) bool { return true })
		if !ok {
			return at
		}
		if at = h.Expires; !j.Hold.Release && l.Algorithm != bucket.Concurrency {
			b.charge(l, at, int64(h.Cost))
			if at += until(func(wait int64) bool { return b.at(l, h.Expires+wait).empty() }); l.Algorithm == bucket.FixedWindow {
				at = (h.Expires/l.Window + 1) * l.Window
			}
		}
	}
}

func (j *judged) describe(now int64) {
	l, b, d := &j.Limit, j.bucket, &j.d
	if !d.Allowed {
		d.RetryAfter = j.wait(now)
	}
	x := j.later(now, 0)
	switch {
	case l.Algorithm == bucket.FixedWindow && l.Requests == 0:
		d.ResetAfter = (now/l.Window+1)*l.Window - now
	case l.Requests == 0:
	case l.Algorithm == bucket.FixedWindow:
		d.ResetAfter = (x/l.Window+1)*l.Window - now
	default:
		d.ResetAfter = until(func(wait int64) bool { return b.at(l, j.later(now, wait)).used(l).Sign() == 0 })
	}
	if l.Requests == 0 {
		return
	}
	held := b.held()
	for d.Remaining < l.Capacity() && b.fits(l, x, held+d.Remaining+1) {
		d.Remaining++
	}
	switch {
	case d.Remaining == l.Capacity():
	case held+d.Remaining+1 > l.Capacity():
		d.NextIn = 1_000_000
	default:
		d.NextIn = until(func(wait int64) bool { return b.fits(l, j.later(now, wait), held+d.Remaining+1) })
	}
	if !b.at(l, x).empty() {
		d.ExpireAt = now + d.ResetAfter
	}
	if d.Held != nil {
		d.Held.Units, d.Held.Number = held, int64(len(b.holds))
		d.ExpireAt = max(d.ExpireAt, j.expireHolds())
	}
}

package bucket

import (
	"math"
	"slices"
)

// Role is the part of a take in its request's verdict.
type Role uint8

const (
	// Enforce denies the request if the take does not fit.
	Enforce Role = iota
	// Shadow is decided and charged alone and never denies, to try a rule on live traffic.
	Shadow
	// Quota denies the request only together with all its other quotas (quota_mode).
	Quota
)

// Never is the RetryAfter of a take that can never pass, because it costs more than the capacity.
const Never = -1

// Take asks one bucket for Cost units.
type Take struct {
	// Key names the bucket. Request.Add ensures that the takes of a request have different keys. A store that keeps it
	// after the decision copies it, because its memory is used again.
	Key string
	// Rule is equal for all buckets of one limit of one rule, and clients cannot choose it. A full store uses it to
	// choose the buckets to evict. It does not change when the process restarts. Stores that never evict ignore it.
	Rule uint64
	// Limit must pass Limit.Check.
	Limit Limit
	// Cost is charged if the request is allowed.
	Cost uint64
	// Need is the room that must be free, if that is more than Cost: a peek is {Cost: 0, Need: 1}.
	Need uint64
	// Refund is given back first, whatever the verdict. A take that only refunds always fits.
	Refund uint64
	// AtOnce is 0, or the part of the capacity that passes at once: Queue sets it. A take that fills the bucket further is
	// early by the time in which the excess leaks. No larger cost ever fits, and Remaining is what is left of this part.
	AtOnce int64
	// ChargedAt is 0, or the Decision.ChargedAt of a charge that Refund gives back. The bucket then loses no more than it
	// still holds of the charge, so that it never allows more than without both. Such a take is enforced, and has neither
	// Cost nor Need.
	ChargedAt int64
	// CountDenied also charges Cost if the request is denied, up to twice the capacity.
	CountDenied bool
	// Role sets whether the take can deny its request.
	Role Role
	// Floor is nil, or a state that the bucket is known to have had. A shared store that may have lost it joins it with
	// the state that it has, as State.Merge, before it judges the take.
	Floor *Floor
	// Lease is 0, or how many units of the bucket a store may charge in advance, to decide the next takes without the
	// shared store: the lease of the rule. Only nearstore reads it.
	Lease uint64
	// Hold is nil for a limit without holds. Takes may share it: no decision changes it.
	Hold *Hold
}

// Request is one or more takes that are decided together: either all enforced takes fit and all are charged, or none
// is. The zero value has no takes and is allowed.
type Request struct {
	// At is the time of the decision, in µs since 1970; 0 means the store's clock. Tests set it.
	At int64
	// Takes are the takes of the request. Use Add to add one.
	Takes []Take
	// Uncertain means that another store may have charged the request already, and has not answered.
	Uncertain bool
	// Dry asks for the decision that the request would have now. Its store changes nothing, and Outcome.Seen has the
	// buckets before the decision, also of a store that belongs to this process alone.
	Dry bool
	// byKey finds a take once there are many.
	byKey map[string]int
}

// Decision is the decision of one bucket.
type Decision struct {
	// Allowed means that the take itself fits, whatever the verdict on the request.
	Allowed bool
	// Remaining is the largest cost that would still fit, after the charge.
	Remaining int64
	// RetryAfter is 0 if Allowed, Never, or the least time after which the same take fits, without other requests.
	RetryAfter int64
	// ResetAfter is the least time until the full quota is available; for the fixed window, until the window ends.
	ResetAfter int64
	// NextIn is the least time after which Remaining grows, without other requests; 0 if the bucket is full.
	NextIn int64
	// Delay is how early an allowed take of a leaky or token bucket is: the time until its earlier content has leaked.
	// With Take.AtOnce, it is the time until no more than that is in the bucket. If each request is held for its Delay,
	// requests leave in the order of their charges, at the rate of the bucket. It is 0 for the window algorithms.
	Delay int64
	// ExpireAt is the time from which dropping the stored state changes no decision, 0 if nothing is stored.
	ExpireAt int64
	// ChargedAt is the time of the bucket. For a token or leaky bucket that the request has charged, it may be later: when
	// the bucket would have been empty without the charge. See Take.ChargedAt.
	ChargedAt int64
	// Held has the holds of the bucket, nil for a take without Take.Hold.
	Held *Held
}

// Outcome is the decision on a request.
type Outcome struct {
	// Allowed is the verdict over all takes.
	Allowed bool
	// RetryAfter is 0 if allowed, Never, or how long to wait until the request could pass.
	RetryAfter int64
	// Decisions has one decision for each take, in the order of the request, and none if Err is set. A store reuses the
	// slice that it finds here if it is large enough.
	Decisions []Decision
	// Seen is what a shared store has shown of the bucket of each take, in the order of the request. It is empty if Err is
	// set, and for a store that belongs to this process alone, unless the request is Dry. A store reuses the slice, as
	// that of Decisions.
	Seen []Seen
	// Origin is what decided.
	Origin Origin
	// Err is why the store could not decide the request. Nothing was charged, unless Err states that this is unknown.
	Err error
}

// begin returns room for the decisions.
func (o *Outcome) begin(takes int) []Decision {
	o.Decisions, o.Seen = slices.Grow(o.Decisions[:0], takes)[:takes], o.Seen[:0]
	o.Origin, o.Err = FromStore, nil
	return o.Decisions
}

// Loaded is a bucket that a store has read for a request.
type Loaded struct {
	// State is the bucket before the decision, and after it the new state.
	State State
	// Changed means that the decision changed State. The store must then keep it, or drop the bucket if State is empty.
	Changed bool
	// Full means that the store has no room for another hold. The store sets it: reserves then do not fit.
	Full bool
}

// Add appends a take and returns its index in Takes. If there is already a take of the same bucket, Add merges the
// two: costs and refunds add up. The larger need, the smaller limit and the smaller lease hold. Denials count if they
// count for one of the two. Costs and needs are clamped to 2 × capacity + 1, which is decided as every larger one. A
// refund is not clamped: under an earlier, larger limit the bucket may have taken more.
func (r *Request) Add(t Take) int {
	t.clamp()
	if t.Hold != nil {
		t.Hold = t.Hold.clamped(uint64(2*t.Limit.Capacity() + 1))
	}
	i := r.find(t.Key)
	if i < 0 {
		r.Takes = append(r.Takes, t)
		return len(r.Takes) - 1
	}
	same := &r.Takes[i]
	if t.Limit.Capacity() < same.Limit.Capacity() {
		same.Limit, same.AtOnce = t.Limit, t.AtOnce
	}
	same.Cost, same.Refund = same.Cost+t.Cost, same.Refund+t.Refund
	same.Need = max(same.Need, t.Need)
	same.CountDenied = same.CountDenied || t.CountDenied
	same.Lease = min(same.Lease, t.Lease)
	if same.Role == Shadow || t.Role == Enforce { // what is enforced for one of them is enforced
		same.Role = t.Role
	}
	if same.clamp(); t.Hold != nil {
		same.Hold = same.Hold.with(t.Hold).clamped(uint64(2*same.Limit.Capacity() + 1))
	}
	return i
}

// Queue sets the capacity with which a bucket accepts the take if up to ahead units wait before it: see
// RuleLimit.MaxDelay. The algorithm must have a queue.
func (t *Take) Queue(ahead int64) {
	t.Limit.Burst, t.AtOnce = registry[t.Limit.Algorithm].queue(t.Limit, ahead, t.Cost)
}

// Capacity returns the largest cost that can ever fit.
func (t *Take) Capacity() int64 {
	if t.AtOnce > 0 && t.Limit.Requests > 0 {
		return t.AtOnce
	}
	return t.Limit.Capacity()
}

func (t *Take) clamp() {
	most := uint64(2*t.Limit.Capacity() + 1)
	t.Cost, t.Need, t.Refund = min(t.Cost, most), min(t.Need, most), min(t.Refund, math.MaxInt64)
}

// room returns how many units must be free for the take to fit.
func (t *Take) room() int64 {
	if t.Hold != nil {
		return t.Hold.room(t)
	}
	return int64(max(t.Cost, t.Need))
}

// alwaysFits reports whether the take only gives back or settles. need is its room.
func (t *Take) alwaysFits(need int64) bool {
	return need == 0 && (t.Refund > 0 || t.Hold != nil && len(t.Hold.Settles) > 0 && len(t.Hold.Reserves) == 0)
}

// fewTakes is how many takes are searched linearly, which allocates nothing. More would need quadratic time.
const fewTakes = 32

// find returns the index of the take with a key, -1 for none.
func (r *Request) find(key string) int {
	if len(r.Takes) <= fewTakes {
		r.byKey = nil // drop the index of an earlier request
		for i := range r.Takes {
			if r.Takes[i].Key == key {
				return i
			}
		}
		return -1
	}
	if r.byKey == nil {
		r.byKey = make(map[string]int, 2*len(r.Takes))
	}
	for i := len(r.byKey); i < len(r.Takes); i++ {
		r.byKey[r.Takes[i].Key] = i
	}
	if i, ok := r.byKey[key]; ok {
		return i
	}
	return -1
}

// Decide decides the request at the time now and fills in the outcome. loaded are the buckets of its takes, in their
// order. Decide does no I/O. A store must lock the buckets from before it reads the states until it has stored them.
func (r *Request) Decide(now int64, loaded []Loaded, o *Outcome) {
	if r.At != 0 {
		now = r.At
	}
	takes := r.Takes
	decisions := o.begin(len(takes))[:len(takes)] // equal lengths spare the loops their bounds checks
	loaded = loaded[:len(takes)]
	for i := range takes {
		takes[i].judge(now, &loaded[i], &decisions[i])
	}
	o.Allowed = fits(takes, decisions)
	var w waits
	for i := range takes {
		t, b, d := &takes[i], &loaded[i], &decisions[i]
		if units := t.Charged(d.Allowed, o.Allowed); units != 0 {
			registry[t.Limit.Algorithm].engine.charge(&t.Limit, &b.State, units)
			b.Changed = true
		}
		if t.Hold != nil {
			t.Hold.complete(t, now, b, d, o.Allowed, &w)
			continue
		}
		t.describe(now, &b.State, d, o.Allowed)
		if !o.Allowed {
			w.add(t, now, &b.State, d)
		}
	}
	o.RetryAfter = w.retryAfter()
}

// DecideDry is Decide for a Dry request. The outcome also has the buckets before the decision.
func (r *Request) DecideDry(now int64, loaded []Loaded, o *Outcome) {
	seen := o.Seen[:0]
	for i := range loaded {
		seen = append(seen, Seen{State: loaded[i].State.Clone(), Reply: Reply{Clock: now}})
		loaded[i].State = loaded[i].State.Clone()
	}
	r.Decide(now, loaded, o)
	o.Seen = seen
}

// fits reports whether all enforced takes fit, and one of the quotas if there are any.
func fits(takes []Take, decisions []Decision) bool {
	quotas, over := 0, 0
	for i := range takes {
		switch role := takes[i].Role; {
		case role == Quota:
			quotas++
			if !decisions[i].Allowed {
				over++
			}
		case role == Enforce && !decisions[i].Allowed:
			return false
		}
	}
	return quotas == 0 || over < quotas
}

// judge brings the bucket to the time now, gives back the refund and decides the take alone.
func (t *Take) judge(now int64, b *Loaded, d *Decision) {
	if t.Hold != nil {
		t.Hold.judge(t, now, b, d)
		return
	}
	need := int64(max(t.Cost, t.Need))
	if d.Held != nil { // of an earlier request
		d.Held = nil
	}
	if t.Limit.Requests == 0 { // a closed bucket neither reads nor writes, so a debt survives it
		b.Changed = false
		d.Allowed = need == 0
		return
	}
	alg := registry[t.Limit.Algorithm].engine
	b.Changed = false
	alg.roll(&t.Limit, &b.State, b.State.anchor(now, &b.Changed))
	if t.Refund > 0 && !b.State.unused() {
		alg.refund(&t.Limit, &b.State, int64(t.Refund), t.ChargedAt)
		b.Changed = true
	}
	d.Allowed = need == 0 && t.Refund > 0 || (t.AtOnce == 0 || need <= t.AtOnce) && alg.fits(&t.Limit, &b.State, need)
}

// fits reports whether the take fits beside what is in the bucket. need is its room.
func (t *Take) fits(s *State, need int64) bool {
	if t.AtOnce > 0 && need > t.AtOnce {
		return false
	}
	if t.Hold != nil {
		if t.Hold.tooMany(s) {
			return false
		}
		need = min(need+s.Holds.Units(), 2*t.Limit.Capacity()+1)
	}
	return registry[t.Limit.Algorithm].engine.fits(&t.Limit, s, need)
}

// Charged returns how many units a decision charges: all of the cost, or none. fits is the verdict on the take itself.
func (t *Take) Charged(fits, requestAllowed bool) int64 {
	charged := fits || t.CountDenied && t.Role == Shadow
	if !requestAllowed && t.Role != Shadow {
		charged = t.CountDenied
	}
	if !charged || t.Limit.Requests == 0 {
		return 0
	}
	return int64(t.Cost)
}

// describe fills in the decision from a State that has been rolled to now, without its holds. Allowed is already set.
func (t *Take) describe(now int64, s *State, d *Decision, requestAllowed bool) {
	d.RetryAfter, d.NextIn, d.Delay, d.ExpireAt, d.ChargedAt = 0, 0, 0, 0, 0
	if s.unused() { // after a refund: an unused bucket has no time of its own
		s.Last = now
	}
	if !d.Allowed {
		d.RetryAfter = t.retryAfter(now, s)
	}
	row := &registry[t.Limit.Algorithm]
	alg := row.engine
	if t.Limit.Requests == 0 {
		d.Remaining, d.ResetAfter = 0, 0
		if row.resets {
			d.ResetAfter, d.ChargedAt = alg.drain(&t.Limit, &State{Last: now}), now
		}
		return
	}
	late := s.Last - now // the clock is this far behind the bucket
	d.ChargedAt = s.Last
	capacity := t.Capacity()
	d.Remaining = max(0, capacity-alg.used(&t.Limit, s))
	d.ResetAfter = late + alg.drain(&t.Limit, s)
	if !s.unused() {
		d.ExpireAt = now + d.ResetAfter
	}
	if d.Remaining < capacity {
		d.NextIn = late + alg.wait(&t.Limit, s, d.Remaining+1+t.Limit.Capacity()-capacity)
	}
	if row.hasBurst && requestAllowed && d.Allowed {
		// The content before the charge. It is negative if the clock stood still meanwhile, or if the bucket was empty.
		if before := t.Limit.sub(held(s), t.Limit.leak(int64(t.Cost))); before.micros >= 0 {
			d.Delay, d.ChargedAt = before.ceil()+late, s.Last+before.micros
		}
		if t.AtOnce > 0 {
			d.Delay = 0
			if excess := t.Limit.sub(held(s), t.Limit.leak(t.AtOnce)).ceil(); excess > 0 {
				d.Delay = excess + late
			}
		}
	}
}

// retryAfter returns the least wait from now after which the take fits its bucket as it is after the decision, or
// Never. It does not repeat a refund. When holds end is not known. The State must have been rolled to now.
func (t *Take) retryAfter(now int64, s *State) int64 {
	need := t.room()
	switch {
	case t.alwaysFits(need):
		return 0
	case need > t.Capacity():
		return Never
	case t.Limit.Requests == 0:
		return 0
	case t.fits(s, need):
		return 0
	}
	wait, alg := int64(0), registry[t.Limit.Algorithm].engine
	if !alg.fits(&t.Limit, s, need) {
		wait = s.Last - now + alg.wait(&t.Limit, s, need)
	}
	if s.Holds.Number() > 0 || t.Hold.tooMany(s) {
		return max(wait, holdWait)
	}
	return wait
}

// waits collects the waits of a denied request: the longest of the enforced takes, the shortest of the quotas.
type waits struct {
	enforced, quota int64
	quotas          bool
}

// add adds the wait of a take. A take that fitted also waits if it was charged for the denial.
func (w *waits) add(t *Take, now int64, s *State, d *Decision) {
	wait := d.RetryAfter
	if d.Allowed && t.CountDenied {
		wait = t.retryAfter(now, s)
	}
	switch t.Role {
	case Enforce:
		w.enforced = later(w.enforced, wait)
	case Quota:
		w.addQuota(wait)
	case Shadow:
	}
}

func (w *waits) addQuota(wait int64) {
	if !w.quotas || w.quota == Never || wait != Never && wait < w.quota {
		w.quota = wait
	}
	w.quotas = true
}

// retryAfter returns the least wait after which the request is allowed, or Never.
func (w *waits) retryAfter() int64 { return later(w.enforced, w.quota) }

// later returns the longer of two waits; Never is the longest.
func later(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

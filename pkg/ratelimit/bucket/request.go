package bucket

import "math"

// Role says what a take means for its request.
type Role uint8

const (
	// Enforce denies the request when it does not fit.
	Enforce Role = iota
	// Shadow is decided and charged alone and never denies: for trying a rule on live traffic.
	Shadow
	// Quota denies the request only together with all other quotas of it (quota_mode).
	Quota
)

// Never is the RetryAfter of what can never pass: it costs more than the capacity.
const Never = -1

// Take asks one bucket for Cost units, and is answered in place.
type Take struct {
	// Key names the bucket; two takes of a request never have the same one (Request.Add sees to that).
	Key string
	// Rule is the same for all buckets of one limit of one rule, and no client chooses it. A store that is full decides by it whose
	// buckets it forgets. It stays the same over restarts; stores that forget nothing do not read it.
	Rule uint64
	// Limit must pass Limit.Check.
	Limit Limit
	// Cost is what to charge when the request is allowed.
	Cost uint64
	// Need is what must be free, when that is more than Cost: a peek is {Cost: 0, Need: 1}.
	Need uint64
	// Refund is given back first, whatever the verdict; a take that only refunds always fits.
	Refund uint64
	// CountDenied charges Cost, up to twice the capacity, also when the request is denied.
	CountDenied bool
	// Role says whether the take can deny its request.
	Role Role

	// Decision is the answer.
	Decision Decision

	// State is what the store holds of the bucket; a store that decides by Request.Decide fills it in before, and keeps it
	// after when Changed is set (and drops the bucket when it is then empty).
	State   State
	Changed bool
}

// Decision is the answer of one bucket.
type Decision struct {
	// Allowed says that the take itself fitted, whatever became of the request.
	Allowed bool
	// Remaining is the largest cost that would still fit, after the charge.
	Remaining int64
	// RetryAfter is 0 when Allowed, Never, or the least time after which the same take fits if nothing else comes.
	RetryAfter int64
	// ResetAfter is the least time after which the full quota is there again; for the fixed window, when the window ends.
	ResetAfter int64
	// NextIn is the least time after which Remaining grows if nothing else comes, 0 when it is full.
	NextIn int64
	// Delay is how early an allowed take of a leaky bucket (or token bucket) is: the time until what was in it before has leaked.
	// To hold each request for that long makes them leave at the rate of the bucket. It is 0 for the window algorithms.
	Delay int64
	// ExpireAt is the time from which the stored state can be dropped without anyone noticing, 0 when nothing is stored.
	ExpireAt int64
}

// Request is one or more takes that are decided together: either all enforced ones fit and all are charged, or none is.
// The zero value is a request without takes, which is allowed.
type Request struct {
	// At is the time to decide for, in µs since 1970; 0 means the store's clock. Tests set it.
	At int64
	// Takes are the buckets that are asked; use Add.
	Takes []Take
	// byKey finds a take once there are many.
	byKey map[string]int

	// Allowed is the verdict over all takes.
	Allowed bool
	// RetryAfter is 0 when allowed, Never, or how long to wait until the request could pass.
	RetryAfter int64
	// Err says why the store could not decide this request; nothing was charged unless it says that it is not known.
	Err error
}

// Add appends a take, or adds it to the take of the same bucket: costs and refunds add up, needs do not, and denials count if
// one of the two says so. Of two limits on the same bucket the smaller one holds. It returns the index of the take in Takes.
// Costs and needs are clamped to 2 × capacity + 1, which is decided as every larger one. A refund is not: under an earlier,
// larger limit the bucket may have taken more.
func (r *Request) Add(t Take) int {
	t.clamp()
	i := r.find(t.Key)
	if i < 0 {
		r.Takes = append(r.Takes, t)
		return len(r.Takes) - 1
	}
	same := &r.Takes[i]
	if t.Limit.Capacity() < same.Limit.Capacity() {
		same.Limit = t.Limit
	}
	same.Cost, same.Refund = same.Cost+t.Cost, same.Refund+t.Refund
	same.Need = max(same.Need, t.Need)
	same.CountDenied = same.CountDenied || t.CountDenied
	same.clamp()
	return i
}

func (t *Take) clamp() {
	most := uint64(2*t.Limit.Capacity() + 1)
	t.Cost, t.Need, t.Refund = min(t.Cost, most), min(t.Need, most), min(t.Refund, math.MaxInt64)
}

// fewTakes are searched one after the other, which allocates nothing; more would take as long as their number squared.
const fewTakes = 32

// find returns the index of the take of a key, -1 for none.
func (r *Request) find(key string) int {
	if len(r.Takes) <= fewTakes {
		r.byKey = nil // of takes that were there before, if any
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

// Decide judges the request at the time now over the State of each take and fills in all answers. It does no I/O; a store
// must keep others away from the buckets from before it reads the states until it has kept them.
func (r *Request) Decide(now int64) {
	if r.At != 0 {
		now = r.At
	}
	for i := range r.Takes {
		r.Takes[i].judge(now)
	}
	denied, quotasDeny := r.verdict()
	r.Allowed = !denied && !quotasDeny
	for i := range r.Takes {
		r.Takes[i].charge(r.Allowed)
	}
	r.describe(now)
}

// verdict says whether an enforced take does not fit, and whether there are quotas and none of them fits.
func (r *Request) verdict() (denied, quotasDeny bool) {
	quotas, over := 0, 0
	for i := range r.Takes {
		t := &r.Takes[i]
		switch {
		case t.Role == Quota:
			quotas++
			if !t.Decision.Allowed {
				over++
			}
		case t.Role == Enforce && !t.Decision.Allowed:
			denied = true
		}
	}
	return denied, quotas > 0 && over == quotas
}

// describe tells what there is to know of each bucket as it is after the decision, and how long the request has to wait.
func (r *Request) describe(now int64) {
	for i := range r.Takes {
		t := &r.Takes[i]
		t.describe(now)
		t.Decision.Delay = 0
		if t.Limit.Algorithm.HasBurst() && r.Allowed && t.Decision.Allowed && t.Limit.Requests > 0 {
			t.Decision.Delay = t.early(now)
		}
	}
	r.RetryAfter = r.retryAfter(now)
}

// judge brings the bucket to the time now, gives back the refund and decides the take alone.
func (t *Take) judge(now int64) {
	need := int64(max(t.Cost, t.Need))
	if t.Limit.Requests == 0 { // a closed bucket neither reads nor writes, so a debt survives it
		t.Changed = false
		t.Decision.Allowed = need == 0
		return
	}
	alg := registry[t.Limit.Algorithm].engine
	t.Changed = t.State.at(&t.Limit, now)
	if t.Refund > 0 && !t.State.Empty() {
		alg.refund(&t.Limit, &t.State, int64(t.Refund))
		t.Changed = true
	}
	t.Decision.Allowed = need == 0 && t.Refund > 0 || alg.fits(&t.Limit, &t.State, need)
}

// charge charges the take, if the verdict says so.
func (t *Take) charge(requestAllowed bool) {
	if t.Cost == 0 || t.Limit.Requests == 0 || !t.charged(requestAllowed) {
		return
	}
	registry[t.Limit.Algorithm].engine.charge(&t.Limit, &t.State, int64(t.Cost))
	t.Changed = true
}

// describe fills in the Decision, but for Allowed, from a State that has been rolled to now.
func (t *Take) describe(now int64) {
	d := &t.Decision
	d.RetryAfter, d.ExpireAt = 0, 0
	alg := registry[t.Limit.Algorithm].engine
	if t.Limit.Requests == 0 {
		d.Remaining, d.NextIn, d.ResetAfter = 0, 0, 0
		if t.Limit.Algorithm == FixedWindow {
			d.ResetAfter = alg.drain(&t.Limit, &State{Last: now})
		}
		if !d.Allowed {
			d.RetryAfter = Never
		}
		return
	}
	if t.State.Empty() { // after a refund: a bucket that nobody has used has no time of its own
		t.State.Last = now
	}
	late := t.State.Last - now // the clock is this far behind the bucket
	d.Remaining = alg.remaining(&t.Limit, &t.State)
	d.ResetAfter = late + alg.drain(&t.Limit, &t.State)
	if !d.Allowed {
		d.RetryAfter = t.retryAfter(now)
	}
	d.NextIn = 0
	if d.Remaining < t.Limit.Capacity() {
		d.NextIn = late + alg.wait(&t.Limit, &t.State, d.Remaining+1)
	}
	if !t.State.Empty() {
		d.ExpireAt = now + d.ResetAfter
	}
}

// retryAfter returns the least wait, from now, after which the take fits its bucket as that is after the decision, or Never. A
// refund is not repeated. The State must have been rolled to now.
func (t *Take) retryAfter(now int64) int64 {
	need := int64(max(t.Cost, t.Need))
	switch {
	case need == 0 && t.Refund > 0:
		return 0
	case need > t.Limit.Capacity():
		return Never
	case t.Limit.Requests == 0:
		return 0
	}
	alg := registry[t.Limit.Algorithm].engine
	if alg.fits(&t.Limit, &t.State, need) {
		return 0
	}
	return t.State.Last - now + alg.wait(&t.Limit, &t.State, need)
}

// early is how long it takes until what was in a leaky bucket before the charge has leaked.
func (t *Take) early(now int64) int64 {
	before := t.Limit.sub(held(&t.State), t.Limit.leak(int64(t.Cost)))
	if before.micros < 0 { // the clock stood still meanwhile, or the bucket was empty
		return 0
	}
	return before.ceil() + t.State.Last - now
}

func (t *Take) charged(requestAllowed bool) bool {
	if !requestAllowed && t.Role != Shadow {
		return t.CountDenied
	}
	return t.Decision.Allowed || t.CountDenied && t.Role == Shadow
}

// retryAfter returns the least wait after which the request is allowed, or Never: the longest wait of the enforced takes and
// the shortest of the quotas. A take that fitted waits too if it was charged for the denial.
func (r *Request) retryAfter(now int64) int64 {
	if r.Allowed {
		return 0
	}
	enforced, quota, quotas := int64(0), int64(Never), false
	for i := range r.Takes {
		t := &r.Takes[i]
		wait := t.Decision.RetryAfter
		if t.Decision.Allowed && t.CountDenied {
			wait = t.retryAfter(now)
		}
		switch t.Role {
		case Enforce:
			enforced = later(enforced, wait)
		case Quota:
			quotas = true
			if quota == Never || wait != Never && wait < quota {
				quota = wait
			}
		}
	}
	if quotas {
		return later(enforced, quota)
	}
	return enforced
}

// later is the longer of two waits; Never is the longest.
func later(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

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

// Take asks one bucket for Cost units.
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

// Outcome is the answer to a request.
type Outcome struct {
	// Allowed is the verdict over all takes.
	Allowed bool
	// RetryAfter is 0 when allowed, Never, or how long to wait until the request could pass.
	RetryAfter int64
	// Decisions are one for each take, in the order of the request. There is none if Err is set. A store writes into the slice
	// that it finds here if that is large enough.
	Decisions []Decision
	// Err says why the store could not decide the request. Nothing was charged unless Err says that this is not known.
	Err error
}

// begin returns room for the decisions.
func (o *Outcome) begin(takes int) []Decision {
	if cap(o.Decisions) < takes {
		o.Decisions = make([]Decision, takes)
	}
	o.Decisions = o.Decisions[:takes]
	o.Err = nil
	return o.Decisions
}

// Loaded is a bucket that a store has read in order to decide a request.
type Loaded struct {
	// State is what the bucket held, and after the decision what it holds.
	State State
	// Changed says that the decision has changed State. The store must keep it then, or drop the bucket if State is empty.
	Changed bool
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

// Decide judges the request at the time now and fills in the outcome. loaded are the buckets of its takes, in their order.
// Decide does no I/O; a store must keep others away from the buckets from before it reads the states until it has kept them.
func (r *Request) Decide(now int64, loaded []Loaded, o *Outcome) {
	if r.At != 0 {
		now = r.At
	}
	takes := r.Takes
	decisions := o.begin(len(takes))[:len(takes)] // the lengths spare the loops their checks
	loaded = loaded[:len(takes)]
	for i := range takes {
		takes[i].judge(now, &loaded[i], &decisions[i])
	}
	o.Allowed = fits(takes, decisions)
	var w waits
	for i := range takes {
		t, b, d := &takes[i], &loaded[i], &decisions[i]
		t.charge(b, d, o.Allowed)
		t.describe(now, &b.State, d, o.Allowed)
		if !o.Allowed {
			w.add(t, now, &b.State, d)
		}
	}
	o.RetryAfter = w.retryAfter()
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
	need := int64(max(t.Cost, t.Need))
	if t.Limit.Requests == 0 { // a closed bucket neither reads nor writes, so a debt survives it
		b.Changed = false
		d.Allowed = need == 0
		return
	}
	alg := registry[t.Limit.Algorithm].engine
	b.Changed = b.State.at(&t.Limit, now)
	if t.Refund > 0 && !b.State.Empty() {
		alg.refund(&t.Limit, &b.State, int64(t.Refund))
		b.Changed = true
	}
	d.Allowed = need == 0 && t.Refund > 0 || alg.fits(&t.Limit, &b.State, need)
}

// charge charges the take, if the verdict over it and over its request says so.
func (t *Take) charge(b *Loaded, d *Decision, requestAllowed bool) {
	charged := d.Allowed || t.CountDenied && t.Role == Shadow
	if !requestAllowed && t.Role != Shadow {
		charged = t.CountDenied
	}
	if !charged || t.Cost == 0 || t.Limit.Requests == 0 {
		return
	}
	registry[t.Limit.Algorithm].engine.charge(&t.Limit, &b.State, int64(t.Cost))
	b.Changed = true
}

// describe fills in the decision, of which Allowed is known, from a State that has been rolled to now.
func (t *Take) describe(now int64, s *State, d *Decision, requestAllowed bool) {
	d.RetryAfter, d.NextIn, d.Delay, d.ExpireAt = 0, 0, 0, 0
	if s.Empty() { // after a refund: a bucket that nobody has used has no time of its own
		s.Last = now
	}
	if !d.Allowed {
		d.RetryAfter = t.retryAfter(now, s)
	}
	alg := registry[t.Limit.Algorithm].engine
	if t.Limit.Requests == 0 {
		d.Remaining, d.ResetAfter = 0, 0
		if t.Limit.Algorithm == FixedWindow {
			d.ResetAfter = alg.drain(&t.Limit, &State{Last: now})
		}
		return
	}
	late := s.Last - now // the clock is this far behind the bucket
	d.Remaining = alg.remaining(&t.Limit, s)
	d.ResetAfter = late + alg.drain(&t.Limit, s)
	if d.Remaining < t.Limit.Capacity() {
		d.NextIn = late + alg.wait(&t.Limit, s, d.Remaining+1)
	}
	if !s.Empty() {
		d.ExpireAt = now + d.ResetAfter
	}
	if t.Limit.Algorithm.HasBurst() && requestAllowed && d.Allowed {
		d.Delay = t.early(now, s)
	}
}

// retryAfter returns the least wait, from now, after which the take fits its bucket as that is after the decision, or Never. A
// refund is not repeated. The State must have been rolled to now.
func (t *Take) retryAfter(now int64, s *State) int64 {
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
	if alg.fits(&t.Limit, s, need) {
		return 0
	}
	return s.Last - now + alg.wait(&t.Limit, s, need)
}

// early is how long it takes until what was in a leaky bucket before the charge has leaked.
func (t *Take) early(now int64, s *State) int64 {
	before := t.Limit.sub(held(s), t.Limit.leak(int64(t.Cost)))
	if before.micros < 0 { // the clock stood still meanwhile, or the bucket was empty
		return 0
	}
	return before.ceil() + s.Last - now
}

// waits is how long the takes of a denied request make it wait: the longest of the enforced ones, and the shortest of the quotas.
type waits struct {
	enforced, quota int64
	quotas          bool
}

// add adds a take, which waits too if it fitted and was charged for the denial.
func (w *waits) add(t *Take, now int64, s *State, d *Decision) {
	wait := d.RetryAfter
	if d.Allowed && t.CountDenied {
		wait = t.retryAfter(now, s)
	}
	switch t.Role {
	case Enforce:
		w.enforced = later(w.enforced, wait)
	case Quota:
		if !w.quotas || w.quota == Never || wait != Never && wait < w.quota {
			w.quota = wait
		}
		w.quotas = true
	case Shadow:
	}
}

// retryAfter returns the least wait after which the request is allowed, or Never.
func (w *waits) retryAfter() int64 { return later(w.enforced, w.quota) }

// later is the longer of two waits; Never is the longest.
func later(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

package ratelimit

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Override lets a limit that the request or its credential brings replace a limit, up to a rate.
type Override struct {
	Max       int64            `yaml:"max" doc:"The highest rate: so many hits in the window of the replaced limit." min:"1" max:"999999999999999" example:"1000" required:"true"`
	Algorithm bucket.Algorithm `yaml:"algorithm" doc:"How it counts." default:"that of the credential, else that of the replaced limit"`
	Burst     int64            `yaml:"burst" doc:"The capacity of its bucket, and the most that a credential can set." min:"1" default:"that of the replaced limit"`
	Name      string           `yaml:"name" doc:"Its name in headers and logs." default:"that of the replaced limit" example:"own"`
}

// maxBrought bounds how many brought limits of a limit are kept compiled. Others are compiled for each request.
const maxBrought = 1024

// broughtLimits are the limits that decide in place of a limit with an Override.
type broughtLimits struct {
	// defaults are those of brought limits: the algorithm and the calendar of the limit.
	defaults defaults
	// named is the limit under Override.Name, with counters of its own; nil without that name.
	named *RuleLimit
	// compiled has the active limit for each brought one: LimitSpec -> *RuleLimit.
	compiled sync.Map
	count    atomic.Int64
}

// bring returns the active limit in place of l, whose Override allows it, for a limit that is brought.
func (r *Rule) bring(l *RuleLimit, spec LimitSpec) *RuleLimit {
	if compiled, ok := l.brought.compiled.Load(spec); ok {
		return compiled.(*RuleLimit)
	}
	compiled := r.compileBrought(l, spec)
	if l.brought.count.Load() < maxBrought {
		l.brought.compiled.Store(spec, compiled)
		l.brought.count.Add(1)
	}
	return compiled
}

// compileBrought returns the active limit for a brought limit. That is the brought limit itself, or Override.Max hits
// in the window of l if the brought limit has a higher rate. If the brought limit cannot be counted, l stays active.
func (r *Rule) compileBrought(l *RuleLimit, spec LimitSpec) *RuleLimit {
	o := l.Override
	window, err := LimitSpec{Unit: spec.Unit, Multiplier: spec.Multiplier, Algorithm: bucket.FixedWindow}.Bucket()
	if err != nil {
		return l
	}
	if faster(spec.Requests, window.Window, o.Max, l.Window) {
		spec.Requests, spec.Unit, spec.Multiplier, spec.Calendar = o.Max, l.Unit, uint64(l.UnitMultiplier), ""
	}
	if spec.Algorithm = cmp.Or(o.Algorithm, spec.Algorithm); spec.Algorithm != 0 && spec.Algorithm != bucket.FixedWindow {
		spec.Calendar = "" // the rule's algorithm counts
	}
	spec = l.brought.defaults.apply(spec)
	spec.Burst = l.broughtBurst(spec)
	limit, err := spec.countable()
	if err != nil {
		return l
	}
	compiled := *cmp.Or(l.brought.named, l)
	compiled.Limit, compiled.Unit = limit, spec.Unit
	compiled.UnitMultiplier = uint32(max(1, spec.Multiplier)) // it fits: see LimitSpec
	compiled.PolicyItem = compiled.policyItem()
	compiled.MaxDelay = 0
	compiled.Lease = (&Limit{Lease: int64(compiled.Lease)}).lease(limit, 0)
	// compiled.rule stays: for a store, the buckets belong to the rule.
	compiled.identity = string(identity(r.Domain, r.path, &compiled))
	if of := compiled.out; of != nil {
		compiled.out = compiled.shadowed(of.beside)
		compiled.out.Counters, compiled.out.DenialLines, compiled.out.index = of.Counters, of.DenialLines, of.index
	}
	return &compiled
}

// faster reports whether a requests in the window of aWindow µs are a higher rate than b in bWindow. It is exact.
func faster(a, aWindow, b, bWindow int64) bool {
	aHigh, aLow := bits.Mul64(uint64(a), uint64(bWindow))
	bHigh, bLow := bits.Mul64(uint64(b), uint64(aWindow))
	return cmp.Or(cmp.Compare(aHigh, bHigh), cmp.Compare(aLow, bLow)) > 0
}

// broughtBurst returns the burst of an active limit: its own or that of the rule, and at most what the rule allows.
// Without a burst in the rule, that is Override.Max.
func (l *RuleLimit) broughtBurst(spec LimitSpec) int64 {
	if !spec.Algorithm.HasBurst() {
		return 0
	}
	set := cmp.Or(l.Override.Burst, l.burst)
	return min(cmp.Or(spec.Burst, set, spec.Requests), cmp.Or(set, l.Override.Max))
}

// countable returns the limit that stores decide by. If the algorithm cannot count as many requests, or as large a
// burst, the burst is the requests, and the counter replaces the log.
func (s LimitSpec) countable() (l bucket.Limit, err *SpecError) {
	if l, err = s.Bucket(); err == nil {
		return l, nil
	}
	s.Burst = 0
	if s.Algorithm.For(s.Requests) == bucket.SlidingWindowLog {
		s.Algorithm = bucket.SlidingWindowCounter
	}
	return s.Bucket()
}

// brought returns the limit that a request brings for a descriptor, in it or with its credential. For a peek of
// another caller, that is the limit of the credential that the descriptor names.
func (p *Plan) brought(d *descriptors.Descriptor) (spec LimitSpec, ok bool) {
	own, cfg := p.query.CredentialLimit, &p.limiter.cfg
	peek := d.Hits != nil && *d.Hits == 0 && !p.query.Beforehand
	switch {
	case d.Limit != nil:
		return specOf(d.Limit), true
	case own == nil && peek && cfg.OwnLimit != nil && !cfg.Strict:
		own = cfg.OwnLimit(p.query.Domain, d.Entries)
	}
	if own == nil {
		return LimitSpec{}, false
	}
	return *own, true
}

// replace adds the limits of a rule for a descriptor, with the brought limit in place of those that allow it. Of two
// limits in one bucket, only the one with the smaller capacity is added. It returns false if no limit is brought.
func (p *Plan) replace(rule *Rule, d *descriptors.Descriptor, descriptor int) bool {
	spec, ok := p.brought(d)
	if !ok {
		return false
	}
	begin := len(p.limits)
	for i := range rule.Limits {
		limit := &rule.Limits[i]
		if limit.Override != nil {
			limit = rule.bring(limit, spec)
		}
		added := p.limits[begin:]
		same := slices.IndexFunc(added, func(a appliedLimit) bool { return a.limit.identity == limit.identity })
		switch {
		case same < 0:
			p.limits = append(p.limits, appliedLimit{limit: limit, descriptor: descriptor, keyed: rule})
		case limit.Capacity() < added[same].limit.Capacity():
			added[same].limit = limit
		}
	}
	return true
}

// specOf returns the limit of a descriptor as a LimitSpec without an algorithm.
func specOf(o *descriptors.RequestLimit) LimitSpec {
	return LimitSpec{Requests: int64(o.RequestsPerUnit), Unit: o.Unit, Multiplier: uint64(o.UnitMultiplier)}
}

package bucket

import (
	"errors"
	"math"
	"slices"
)

// Spread is one request whose buckets are in several places, such as the slots of a Redis Cluster. A place decides only
// a part of it. In the first round, all parts take. If one of them denies or fails, those that have charged give it
// back in a second round. Meanwhile their buckets deny more than they have to. They never allow too much.
type Spread struct {
	whole         *Request
	first, second []*Part
	counted       bool // a part has charged a denial or settled, although the request failed
}

// Part is the takes of a request that one place decides.
type Part struct {
	// Request has the takes of this part.
	Request Request
	// Outcome is the answer of the place. The caller sets it.
	Outcome Outcome

	takes []int // the takes of the whole request
}

// NewSpread divides a request into parts. place returns the number of the place of a take, from 0.
func NewSpread(r *Request, place func(take int) int) *Spread {
	s := &Spread{whole: r}
	for i := range r.Takes {
		at := place(i)
		for len(s.first) <= at {
			s.first = append(s.first, &Part{Request: Request{At: r.At, Dry: r.Dry}})
		}
		s.first[at].add(i, firstTake(r.Takes[i]))
	}
	return s
}

// firstTake returns what is asked in the first round. Quotas deny only together, so they take alone, as in shadow mode,
// until the answers of all quotas are there.
func firstTake(t Take) Take {
	if t.Role == Quota {
		t.Role, t.CountDenied = Shadow, false
	}
	return t
}

func (p *Part) add(take int, t Take) {
	p.takes, p.Request.Takes = append(p.takes, take), append(p.Request.Takes, t)
}

// show copies what a shared store has shown of the buckets of a part.
func (p *Part) show(o *Outcome) {
	if len(p.Outcome.Seen) == 0 {
		return
	}
	if len(o.Seen) == 0 {
		o.Seen = slices.Grow(o.Seen, len(o.Decisions))[:len(o.Decisions)]
		clear(o.Seen)
	}
	for i, take := range p.takes {
		fate := max(o.Seen[take].Floor, p.Outcome.Seen[i].Floor) // only the first round has floors
		o.Seen[take] = p.Outcome.Seen[i]
		o.Seen[take].Floor = fate
	}
}

// First returns the parts of the first round.
func (s *Spread) First() []*Part { return s.first }

// Split replaces a part, which was not decided, by one part for each of its takes.
func (s *Spread) Split(p *Part) []*Part {
	single := make([]*Part, len(p.takes))
	for i, take := range p.takes {
		single[i] = &Part{Request: Request{At: p.Request.At, Dry: p.Request.Dry}}
		single[i].add(take, p.Request.Takes[i])
	}
	s.first, s.second = replaced(s.first, p, single), replaced(s.second, p, single)
	return single
}

func replaced(parts []*Part, p *Part, by []*Part) []*Part {
	if i := slices.Index(parts, p); i >= 0 {
		return slices.Replace(slices.Clone(parts), i, i+1, by...)
	}
	return parts
}

// Settle returns the parts of the second round, after the first one: none if the request is allowed, or if nothing is
// to be corrected.
func (s *Spread) Settle() []*Part {
	failed := s.err() != nil
	if s.whole.Dry {
		return nil
	}
	if !failed && fits(s.whole.Takes, s.decisions(make([]Decision, len(s.whole.Takes)))) {
		return nil
	}
	for _, p := range s.first {
		if p.Outcome.Err != nil {
			continue
		}
		second := &Part{Request: Request{At: p.Request.At}}
		for i, take := range p.takes {
			if t, ok := s.settling(p, i, failed); ok {
				second.add(take, t)
			}
		}
		if len(second.takes) > 0 {
			s.second = append(s.second, second)
		}
	}
	return s.second
}

// settling returns what is asked in the second round about take i of a part. failed means that the request is not
// decided; otherwise it is denied.
func (s *Spread) settling(p *Part, i int, failed bool) (second Take, ok bool) {
	t, asked, d := &s.whole.Takes[p.takes[i]], &p.Request.Takes[i], &p.Outcome.Decisions[i]
	fits, reserved := d.Allowed, d.Held != nil && d.Held.Until != 0 && (failed || t.Role != Shadow)
	charged := fits && t.Cost > 0 && (p.Outcome.Allowed || asked.Role == Shadow)
	second = Take{Key: t.Key, Rule: t.Rule, Limit: t.Limit, AtOnce: t.AtOnce}
	if t.Hold != nil {
		second.Hold = t.Hold.Undo(d.Held.Until)
		s.counted = s.counted || failed && len(t.Hold.Settles) > 0
	}
	switch {
	case failed && !charged:
		s.counted = s.counted || asked.CountDenied && t.Cost > 0
		return second, reserved
	case failed, charged && t.Role != Shadow && !t.CountDenied:
		second.Refund, second.ChargedAt = t.Cost, d.ChargedAt
		return second, true
	case t.Role == Shadow || !t.CountDenied:
		return second, reserved
	case charged: // rightly; only its wait is missing
		second.Role, second.Need = Shadow, uint64(t.room())
		return second, true
	case t.Role == Quota && !fits: // a denial that counts
		second.Role, second.Cost, second.Need, second.CountDenied = Shadow, t.Cost, uint64(t.room()), true
		return second, true
	}
	return second, reserved
}

// Settled reports whether the second round is complete, so that a request that failed has charged nothing. A part that
// has charged its denial (Take.CountDenied) keeps it, so the request is not settled.
func (s *Spread) Settled() bool {
	if s.counted {
		return false
	}
	for _, p := range s.second {
		if p.Outcome.Err != nil {
			return false
		}
	}
	return true
}

// Outcome fills in the outcome of the whole request after the second round. Its Err has the errors of the first round.
func (s *Spread) Outcome(o *Outcome) {
	if err := s.err(); err != nil {
		s.rename()
		*o = Outcome{Err: err}
		return
	}
	if s.whole.Dry {
		s.decideSeen(o)
		return
	}
	decisions := s.decisions(o.begin(len(s.whole.Takes)))
	o.Allowed = fits(s.whole.Takes, decisions)
	var w waits
	for _, p := range s.first {
		w.enforced = later(w.enforced, p.Outcome.RetryAfter)
		p.show(o)
	}
	if o.Allowed {
		o.RetryAfter = 0
		return
	}
	quotas := make(map[int]int64) // the waits of quotas
	for i := range decisions {
		decisions[i].Delay = 0
		if s.whole.Takes[i].Role == Quota {
			quotas[i] = decisions[i].RetryAfter
		}
	}
	for _, p := range s.second {
		if p.Outcome.Err != nil {
			continue
		}
		for i, take := range p.takes {
			s.correct(&decisions[take], &p.Outcome.Decisions[i], take, &w, quotas)
		}
		p.show(o)
	}
	for _, wait := range quotas {
		w.addQuota(wait)
	}
	o.RetryAfter = w.retryAfter()
}

// decideSeen decides a Dry request, at the earliest time of its parts.
func (s *Spread) decideSeen(o *Outcome) {
	o.begin(len(s.whole.Takes))
	now := int64(math.MaxInt64)
	for _, p := range s.first {
		p.show(o)
		now = min(now, p.Outcome.Seen[0].Clock)
	}
	s.whole.DecideSeen(now, o)
}

// rename makes errors of the script name takes of the whole request.
func (s *Spread) rename() {
	for _, p := range s.first {
		if failed, ok := errors.AsType[*ScriptError](p.Outcome.Err); ok {
			failed.Take = p.takes[failed.Take]
		}
	}
}

// correct replaces the first decision on a take by its second one, which does not change the verdict.
func (s *Spread) correct(first, second *Decision, take int, w *waits, quotas map[int]int64) {
	held := first.Held
	if held != nil { // what has ended in the first round counts, and what was undone does not
		held.Units, held.Number, held.Until = second.Held.Units, second.Held.Number, 0
		held.Expired += second.Held.Expired
		if !first.Allowed { // only the first round has asked for the holds
			second.RetryAfter = later(first.RetryAfter, second.RetryAfter)
		}
	}
	if s.whole.Takes[take].Role == Quota {
		quotas[take] = second.RetryAfter
	} else {
		w.enforced = later(w.enforced, second.RetryAfter)
	}
	fits, wait := first.Allowed, second.RetryAfter
	*first = *second
	first.Held = held
	if first.Allowed, first.RetryAfter, first.Delay = fits, wait, 0; fits {
		first.RetryAfter = 0
	}
}

// decisions fills in the decisions of the first round, which has no errors.
func (s *Spread) decisions(all []Decision) []Decision {
	for _, p := range s.first {
		for i, take := range p.takes {
			all[take] = p.Outcome.Decisions[i]
		}
	}
	return all
}

// err returns the errors of the first round.
func (s *Spread) err() error {
	var all []error
	for _, p := range s.first {
		if p.Outcome.Err != nil {
			all = append(all, p.Outcome.Err)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

package ratelimit

import (
	"slices"
	"sync/atomic"
)

// Places are the places that a request has in the queues of its rules, one for each rule with a MaxDelay. So a client
// that chooses the values of a descriptor, and with them its buckets, does not take the places of other rules.
type Places []*atomic.Int64

// Leave gives the places back.
func (p Places) Leave() {
	for _, held := range p {
		held.Add(-1)
	}
}

// takePlaces sets how long the answer can be held: not at all if a queue is full. A request has its places before it is
// decided, because one that is denied for lack of a place must not be charged.
func (p *Plan) takePlaces() {
	p.hold = p.query.MaxHold
	most := p.limiter.cfg.MaxHeldPerRule
	if most == 0 || p.hold == 0 {
		return
	}
	for i := range p.limits {
		a := &p.limits[i]
		rule := p.matches[a.descriptor].rule
		if a.limit.MaxDelay == 0 || a.limit.Shadow || slices.Contains(p.places, rule.held) {
			continue
		}
		if p.limiter.dry {
			if rule.held.Load() >= most {
				p.hold = 0
			}
			continue
		}
		p.places = append(p.places, rule.held)
		if rule.held.Add(1) > most {
			p.LeavePlaces()
			p.hold = 0
			return
		}
	}
}

// LeavePlaces gives the places of a request back whose answer is not held. Reset does so, too.
func (p *Plan) LeavePlaces() {
	if len(p.places) > 0 {
		p.places.Leave()
		p.places = p.places[:0]
	}
}

// KeepPlaces returns the places of a request whose answer is held. The caller must give them back.
func (p *Plan) KeepPlaces() Places {
	kept := slices.Clone(p.places)
	p.places = p.places[:0]
	return kept
}

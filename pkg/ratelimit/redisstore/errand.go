package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// errand decides the requests of one caller whose buckets are at several nodes, or in several slots of a cluster. It
// sends to all nodes at once. A request in several places takes a second round trip if one of them denies it.
type errand struct {
	store   *Store
	ctx     context.Context // of the caller
	until   time.Time       // the end of the caller's wait
	within  context.Context // ctx, until then
	spreads []*spread
}

// spread is a request in several places.
type spread struct {
	*bucket.Spread
	outcome *bucket.Outcome
}

// piece is what one node decides: a request, or a part of one.
type piece struct {
	request *bucket.Request
	outcome *bucket.Outcome
	place   home
	spread  *spread      // nil for a whole request
	part    *bucket.Part // nil for a whole request
	hops    int          // how often it was sent elsewhere
}

// maxHops is how often a piece is sent elsewhere. A stale table and a moving slot together need three hops.
const maxHops = 5

// tryAgainAfter is the wait before a single key is tried again, in case a node cannot tell where it is.
const tryAgainAfter = time.Millisecond

func (e *errand) run(requests []bucket.Request, outcomes []bucket.Outcome) {
	e.awaitSlots()
	var pieces []piece
	for i := range requests {
		pieces = e.divide(pieces, &requests[i], &outcomes[i])
	}
	e.deliver(pieces, false)
	pieces = pieces[:0]
	for _, s := range e.spreads {
		pieces = append(pieces, e.pieces(s, s.Settle())...)
	}
	e.deliver(pieces, true)
	for _, s := range e.spreads {
		s.Outcome(s.outcome)
		if err := s.outcome.Err; err != nil && !s.Settled() {
			s.outcome.Err = fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, err)
		}
	}
}

// awaitSlots waits until the slots of the clusters have been read once, or could not be read.
func (e *errand) awaitSlots() {
	for _, k := range e.store.spaces {
		if c, ok := k.(*cluster); ok {
			select {
			case <-c.tried:
			case <-e.within.Done():
			}
		}
	}
}

// divide appends the pieces of a request, none if a node does not answer: then the others must not charge in vain.
func (e *errand) divide(pieces []piece, r *bucket.Request, o *bucket.Outcome) []piece {
	places, of := make([]home, 0, 4), make([]int, len(r.Takes)) // of has the index of the place of each take
	for i := range r.Takes {
		p := e.store.home(&r.Takes[i])
		if p.node == nil {
			p.cluster.readAgain()
		}
		if p.node == nil || p.node.breaker.open() {
			*o = bucket.Outcome{Err: ErrUnavailable}
			return pieces
		}
		if of[i] = slices.Index(places, p); of[i] < 0 {
			of[i], places = len(places), append(places, p)
		}
	}
	switch len(places) {
	case 0:
		r.Decide(time.Now().UnixMicro(), nil, o) // it has no takes, so it is allowed
		return pieces
	case 1:
		return append(pieces, piece{request: r, outcome: o, place: places[0]})
	}
	s := e.spread(r, o, func(take int) int { return of[take] })
	return append(pieces, e.pieces(s, s.First())...)
}

func (e *errand) spread(r *bucket.Request, o *bucket.Outcome, place func(take int) int) *spread {
	s := &spread{bucket.NewSpread(r, place), o}
	e.spreads = append(e.spreads, s)
	return s
}

// pieces returns the pieces for parts, each of whose buckets are in one place.
func (e *errand) pieces(s *spread, parts []*bucket.Part) (pieces []piece) {
	for _, part := range parts {
		place := e.store.home(&part.Request.Takes[0])
		pieces = append(pieces, piece{&part.Request, &part.Outcome, place, s, part, 0})
	}
	return pieces
}

// deliver lets the nodes decide the pieces, and follows those whose slots have moved. Settling pieces are sent even if
// the caller does not wait for their answers any more.
func (e *errand) deliver(pieces []piece, settling bool) {
	for len(pieces) > 0 {
		slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.place.slot, b.place.slot) })
		var answered sync.WaitGroup
		calls := map[*node]*call{}
		for _, p := range pieces {
			n := p.place.node
			if n == nil {
				*p.outcome = bucket.Outcome{Err: ErrUnavailable}
				continue
			}
			if calls[n] == nil {
				calls[n] = n.newCall(e.until, answered.Done)
				calls[n].settling = settling
			}
			calls[n].add(p.request, p.outcome, p.place.scope)
		}
		for _, c := range calls { // not before all are prepared: a panic must leave no call on its way
			answered.Add(1)
			c.start(e.ctx)
		}
		answered.Wait()
		var moved []piece
		for i := range pieces {
			if p := &pieces[i]; p.outcome.Err != nil && e.within.Err() == nil {
				moved = append(moved, e.follow(p)...)
			}
		}
		pieces = moved
	}
}

// follow returns what to send instead of a piece that a node of a cluster has refused because its slot is moving or has
// moved. Such a refusal has charged nothing. It returns nothing after any other error.
func (e *errand) follow(p *piece) []piece {
	c, err := p.place.cluster, p.outcome.Err
	if c == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) { // the node has no slots any more, so it was closed while the piece waited
		n := c.nodeOf(p.place.slot)
		if n == p.place.node {
			return nil // the store is closed
		}
		p.place.node, p.place.asking = n, false
		return []piece{*p} // no node has sent it elsewhere, so this is no hop
	}
	if p.hops >= maxHops {
		return nil
	}
	p.hops++
	switch code(err) {
	case "MOVED":
		c.readAgain()
		p.place.node, p.place.asking = c.named(err, p.place.node), false
		return []piece{*p}
	case "ASK":
		p.place.node, p.place.asking = c.named(err, p.place.node), true
		return e.apart(p)
	case "TRYAGAIN":
		// Some of the keys have moved already. The nodes know where each single key is.
		p.place.node, p.place.asking = c.nodeOf(p.place.slot), false
		if len(p.request.Takes) == 1 && p.place.alone {
			select {
			case <-time.After(tryAgainAfter):
			case <-e.within.Done():
			}
		}
		return e.apart(p)
	case "CLUSTERDOWN":
		c.readAgain()
	}
	return nil
}

// apart returns one piece for each take, and none of them shares a script call.
func (e *errand) apart(p *piece) []piece {
	p.place.alone = true
	if len(p.request.Takes) == 1 {
		return []piece{*p}
	}
	s := p.spread
	var parts []*bucket.Part
	if s == nil {
		s = e.spread(p.request, p.outcome, func(take int) int { return take })
		parts = s.First()
	} else {
		parts = s.Split(p.part)
	}
	pieces := e.pieces(s, parts)
	for i := range pieces {
		pieces[i].place, pieces[i].hops = p.place, p.hops
	}
	return pieces
}

// named returns the node that a reply names as the one to ask: "MOVED 3999 127.0.0.1:6381".
func (c *cluster) named(reply error, by *node) *node {
	words := strings.Fields(reply.Error())
	return c.node(complete(words[len(words)-1], by.name), true)
}

package nearstore

import "github.com/extauthz/extauthz/pkg/ratelimit/bucket"

// askDry prepares a Dry request that the shared store answers. Nothing is noted of it.
func (b *exchange) askDry(r *bucket.Request) {
	for i := range r.Takes {
		t, k := &r.Takes[i], &b.known[i]
		if k.found && t.Limit.Requests > 0 && k.needsFloor(b.store.shared.Epoch(t)) {
			t.Floor = k.floor()
		}
	}
}

// answerDry decides a Dry request again if Redis will charge what was admitted here before the next take of a bucket.
func (b *exchange) answerDry(r *bucket.Request, o *bucket.Outcome) {
	owing := false
	b.name(r)
	b.edit(func() {
		for i := range r.Takes {
			t, k := &r.Takes[i], &b.known[i]
			if t.Floor = nil; o.Err != nil || t.Limit.Requests == 0 {
				continue
			}
			seen := &o.Seen[i]
			if units := k.owes(seen.Clock); units > 0 {
				limit := wide(k.debt.room(t.Limit))
				seen.State.Charge(&limit, seen.Clock, units)
				owing = true
			}
		}
	})
	if owing {
		r.DecideSeen(o.Seen[0].Clock, o)
	}
}

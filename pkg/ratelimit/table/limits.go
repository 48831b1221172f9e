package table

import "github.com/extauthz/extauthz/pkg/ratelimit/bucket"

// limits are the limits of the buckets of a shard, each once, under numbers from 1. Most buckets share their limit.
type limits struct {
	numbers map[bucket.Limit]uint32
	pool    pool[limitUse]
}

type limitUse struct {
	limit   bucket.Limit
	buckets uint32
	// log means that its states have grants. rate is State.Rate, 0 for a limit without a debt. Both follow from the
	// algorithm, and are here because each take needs them.
	log  bool
	rate int64
}

func (l *limits) at(number uint32) *bucket.Limit { return &l.pool.at(number).limit }

// use returns the number of a limit, and counts a bucket for it.
func (l *limits) use(limit *bucket.Limit) uint32 {
	number, ok := l.numbers[*limit]
	if !ok {
		u := limitUse{limit: *limit, log: limit.Algorithm.HasGrants()}
		if limit.Algorithm.HasBurst() {
			u.rate = limit.Requests
		}
		number = l.pool.add(u)
		if l.numbers == nil {
			l.numbers = make(map[bucket.Limit]uint32)
		}
		l.numbers[*limit] = number
	}
	l.pool.at(number).buckets++
	return number
}

// release takes a bucket from a limit, which is dropped with the last one.
func (l *limits) release(number uint32) {
	u := l.pool.at(number)
	if u.buckets--; u.buckets == 0 {
		delete(l.numbers, u.limit)
		l.pool.remove(number)
	}
}

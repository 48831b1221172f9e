package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// BucketQuery names buckets: those of a descriptor, of an API key, or of a rule. One of the three is set.
type BucketQuery struct {
	Domain  string              `json:"domain"`
	Entries []descriptors.Entry `json:"entries,omitempty"`
	KeyID   string              `json:"key_id,omitempty"`
	Rule    string              `json:"rule,omitempty"`
}

// Buckets are the buckets that a BucketQuery names.
type Buckets struct {
	Buckets []inspect.Bucket `json:"buckets"`
	// Note is what the list leaves out, "" for nothing.
	Note string `json:"note,omitempty"`
}

// mostOfRule is how many buckets of a rule are shown: those with the most hits.
const mostOfRule = 100

// Buckets shows buckets, and changes nothing. known is the store that decides while Redis does not, nil for none.
func (r *requests) Buckets(ctx context.Context, q BucketQuery, known ratelimit.Store) (*Buckets, error) {
	found, note, err := r.find(ctx, q)
	if err != nil {
		return nil, err
	}
	shown, err := r.look(ctx, q, r.decides, found)
	if err != nil && known != nil {
		note += "; Redis did not decide (" + redisstore.Reason(err) + "): this is the last known state"
		note = strings.TrimPrefix(note, "; ")
		shown, err = r.look(ctx, q, known, found)
	}
	if q.Rule != "" {
		slices.SortStableFunc(shown, func(a, b inspect.Bucket) int { return cmp.Compare(b.Units(), a.Units()) })
		shown = shown[:min(len(shown), mostOfRule)]
	}
	return &Buckets{Buckets: shown, Note: note}, err
}

// find returns the buckets that a query names.
func (r *requests) find(ctx context.Context, q BucketQuery) (found []ratelimit.Located, note string, err error) {
	rules := r.live.Limits()
	switch {
	case q.Rule != "":
		return r.findRule(ctx, q)
	case q.KeyID != "":
		id, ok := r.keys.keys.Named(q.KeyID)
		if !ok {
			return nil, "", fmt.Errorf("no API key %s is valid now", suggest.Quoted(q.KeyID))
		}
		made, others := r.live.Policies().DescriptorsOf(q.Domain, id)
		for _, entries := range made {
			found = append(found, rules.Locate(q.Domain, entries, id.Limit)...)
		}
		if others > 0 {
			note = suggest.Counted(others, "limit") + " of the policy also depends on the request: use --descriptor"
		}
		if len(found) == 0 && note == "" {
			err = fmt.Errorf("no limit of the policy of %s counts the requests of this key", suggest.Quoted(q.Domain))
		}
		return found, note, err
	}
	found = rules.Locate(q.Domain, q.Entries, ownLimits(r.live, r.keys.keys)(q.Domain, q.Entries))
	if len(found) > 0 {
		return found, "", nil
	}
	if miss := rules.Miss(q.Domain, q.Entries, ratelimit.ShowValues); miss != "" {
		return nil, "", errors.New(miss)
	}
	return nil, "", errors.New("the rule that matches is unlimited, so it has no buckets")
}

// findRule searches Redis for the buckets of a rule.
func (r *requests) findRule(ctx context.Context, q BucketQuery) (found []ratelimit.Located, note string, err error) {
	const most = 10_000
	if r.redis == nil {
		return nil, "", errors.New("the memory store does not keep the keys of buckets: use --descriptor or --key-id, " +
			"or extauthz buckets top")
	}
	located, patterns := r.live.Limits().LocateRule(q.Domain, q.Rule)
	if len(located) == 0 {
		var names []string
		for _, rule := range r.live.Limits().All() {
			names = append(names, rule.Name)
		}
		return nil, "", fmt.Errorf("no limited rule %s in the domain %s%s", suggest.Quoted(q.Rule), suggest.Quoted(q.Domain),
			suggest.Meant(q.Rule, names...))
	}
	for i, l := range located {
		keys, complete, err := r.redis.Keys(ctx, l.Limit.Limit, patterns[i], most)
		if err != nil {
			return nil, "", err
		}
		for _, key := range keys {
			one := l
			one.Take.Key = key
			found = append(found, one)
		}
		if !complete {
			note = fmt.Sprintf("the rule has more than %d buckets; these are the fullest of some", most)
		}
	}
	if note == "" && len(found) > mostOfRule {
		note = fmt.Sprintf("the fullest %d of %d buckets", mostOfRule, len(found))
	}
	return found, note, nil
}

// mostAtOnce is how many buckets are read at once: their holds are in memory for that time.
const mostAtOnce = 100

// look returns what buckets hold in a store, without empty ones of refused requests and of replaced limits. Those of
// a rule have no list of their holds.
func (r *requests) look(ctx context.Context, q BucketQuery, from ratelimit.Store, found []ratelimit.Located,
) (all []inspect.Bucket, err error) {
	all = []inspect.Bucket{}
	for some := range slices.Chunk(found, mostAtOnce) {
		requests := make([]bucket.Request, len(some))
		for i := range some {
			requests[i] = bucket.Request{Dry: true, Takes: []bucket.Take{opened(some[i].Take)}}
		}
		outcomes := make([]bucket.Outcome, len(requests))
		ratelimit.Take(ctx, from, requests, outcomes)
		for i := range some {
			if err := outcomes[i].Err; err != nil {
				return nil, fmt.Errorf("%s: %w", some[i].Take.Key, err)
			}
			b := inspect.BucketOf(&some[i], &outcomes[i])
			if b.DeniedSince, b.Denials = r.limiter.DeniedSince(b.Key); q.Rule != "" {
				b.Holds.Summarize()
			}
			if b.Units() > 0 || !some[i].Refused && !some[i].Replaced {
				all = append(all, b)
			}
		}
	}
	return all, nil
}

// opened returns a take of a bucket with a limit of 0 as one with a limit of 1, because no store reads a closed bucket.
func opened(t bucket.Take) bucket.Take {
	if t.Limit.Requests == 0 {
		t.Limit.Requests, t.Limit.Burst = 1, 1
	}
	return t
}

// commandPatience bounds a call of Redis by a command.
const commandPatience = 5 * time.Second

// Reset empties the buckets of a descriptor in Redis. Of an emptied bucket, replicas restore at most its holds.
func (o *Offline) Reset(ctx context.Context, q BucketQuery) error {
	found, _, err := o.find(ctx, q)
	for i := 0; i < len(found) && err == nil; i++ {
		if err = o.resetOne(ctx, found[i].Take); err != nil {
			err = fmt.Errorf("%s: %w", found[i].Take.Key, err)
		}
	}
	return err
}

// resetOne empties a bucket. A refund does that, and leaves the note that voids what replicas remember. A refund of an
// empty bucket leaves none, so a unit is charged before. The live holds are removed one by one.
func (o *Offline) resetOne(ctx context.Context, t bucket.Take) error {
	look, charge, refund := opened(t), opened(t), opened(t)
	charge.Cost, charge.Role, charge.CountDenied = 1, bucket.Shadow, true
	refund.Refund = math.MaxInt64
	outcomes := make([]bucket.Outcome, 2)
	if t.Hold != nil {
		ratelimit.Take(ctx, o.redis, []bucket.Request{{Dry: true, Takes: []bucket.Take{look}}}, outcomes[:1])
		if outcomes[0].Err != nil {
			return outcomes[0].Err
		}
		refund.Hold = t.Hold.Terms()
		for _, c := range outcomes[0].Seen[0].State.Holds.Live() {
			refund.Hold.Settles = append(refund.Hold.Settles, bucket.HoldCost{ID: c.ID, Expires: c.Expires})
		}
	}
	requests := []bucket.Request{{Takes: []bucket.Take{charge}}, {Takes: []bucket.Take{refund}}}
	ratelimit.Take(ctx, o.redis, requests, outcomes)
	return errors.Join(outcomes[0].Err, outcomes[1].Err)
}

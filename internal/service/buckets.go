package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// Bucket is a bucket in Redis, as `extauthz buckets` shows it.
type Bucket struct {
	Key string `json:"key"`
	// Rule is the name of its rule, and Limit that of the limit.
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	// Refused means that the bucket counts requests that ext_authz has refused.
	Refused bool `json:"refused,omitempty"`
	// Used is how many hits were in use before the reset, of so many in all.
	Used     int64 `json:"used"`
	Capacity int64 `json:"capacity"`
}

// Reset is whether ResetBuckets empties the buckets. Otherwise it only shows them.
type Reset bool

// bucketsPatience bounds the calls of ResetBuckets.
const bucketsPatience = 5 * time.Second

// ResetBuckets empties the buckets of a descriptor in Redis, or only shows them. It finds them by the rules and
// settings of the service. Replicas do not restore what they remember of an emptied bucket.
func ResetBuckets(ctx context.Context, s *settings.Settings, domain string, d *ratelimitv3.RateLimitDescriptor,
	reset Reset) ([]Bucket, error) {
	if !s.UsesRedis() {
		return nil, errors.New("the buckets are in the memory of each replica, and only those in Redis can be reset: set " +
			"REDIS_URL, or restart the replica")
	}
	ctx, cancel := context.WithTimeout(ctx, bucketsPatience)
	defer cancel()
	files, log := newCertificates(slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler)
	loaded, err := loadRules(ctx, s, files, log)
	if err != nil {
		return nil, err
	}
	var entries []descriptors.Entry
	for _, e := range d.GetEntries() {
		entries = append(entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	live := newLive(s)
	live.Activate(loaded.first, nil)
	var own *ratelimit.LimitSpec
	if s.Keys.Configured() || loaded.sample {
		keys, err := openKeys(ctx, s, loaded, nil, log)
		if err != nil {
			return nil, err
		}
		defer func() { _ = keys.close() }() // it was only read
		own = ownLimits(live, keys.keys)(domain, entries)
	}
	found := live.Limits().Locate(domain, entries, own)
	if len(found) == 0 {
		if miss := live.Limits().Miss(domain, entries, ratelimit.ShowValues); miss != "" {
			return nil, errors.New(miss)
		}
		return nil, errors.New("the rule that matches is unlimited, so it has no buckets")
	}
	cfg, err := bucketsConfig(s, files)
	if err != nil {
		return nil, err
	}
	redisstore.Log(log) // the command prints its error
	cfg.Timeout = bucketsPatience
	store, err := redisstore.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	defer func() { _ = store.Close() }() // all calls are answered
	if err := store.Ping(ctx); err != nil {
		if mistake := redisMistake(s, err); mistake != nil {
			return nil, mistake
		}
		return nil, err
	}
	return resetAll(ctx, store, found, reset)
}

// resetAll shows the buckets that exist, or those of requests and active limits, and empties them.
func resetAll(ctx context.Context, store ratelimit.Store, found []ratelimit.Located, reset Reset) (all []Bucket,
	err error) {
	for i := range found {
		l := &found[i]
		used, err := resetOne(ctx, store, l.Take, reset)
		if err != nil {
			return all, fmt.Errorf("%s: %w", l.Take.Key, err)
		}
		if used > 0 || !l.Refused && !l.Replaced {
			all = append(all, Bucket{
				Key: l.Take.Key, Rule: l.Rule.Name, Limit: l.Limit.Policy, Refused: l.Refused, Used: used,
				Capacity: l.Limit.Capacity(),
			})
		}
	}
	return all, nil
}

// resetOne returns how many units of a bucket are in use, and empties it. A refund does that, and leaves the note that
// voids what replicas remember. A refund of an empty bucket leaves none, so a unit is charged before.
func resetOne(ctx context.Context, store ratelimit.Store, t bucket.Take, reset Reset) (used int64, err error) {
	if t.Limit.Requests == 0 { // the script does not read a closed bucket
		t.Limit.Requests, t.Limit.Burst = 1, 1
	}
	look, charge, refund := t, t, t
	charge.Cost, charge.Role, charge.CountDenied = 1, bucket.Shadow, true
	refund.Refund = math.MaxInt64
	requests := []bucket.Request{{Takes: []bucket.Take{look}}}
	if reset {
		requests = append(requests,
			bucket.Request{Takes: []bucket.Take{charge}}, bucket.Request{Takes: []bucket.Take{refund}})
	}
	outcomes := make([]bucket.Outcome, len(requests))
	ratelimit.Take(ctx, store, requests, outcomes)
	for i := range outcomes {
		if err := outcomes[i].Err; err != nil {
			return 0, err
		}
	}
	seen := &outcomes[0].Seen[0]
	return seen.State.Used(&t.Limit, seen.Clock), nil
}

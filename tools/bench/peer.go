package main

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/tools/loadgen"
)

// peerSeries compares with another rate limit service, whose row is the first. The contests are what each can do at
// most, with 1 and with 10 descriptors, and what a request costs at low load. Both use Redis.
func peerSeries(ctx context.Context, s *stage) ([]*contest, error) {
	if s.peer == "" {
		return nil, errors.New("name the other service with -peer host:port, and its Redis with -peer-redis host:port")
	}
	buckets, err := s.services(ctx, "token bucket", s.redis)
	if err != nil {
		return nil, err
	}
	windows, err := s.services(ctx, "fixed window", s.redis, "DEFAULT_ALGORITHM=fixed_window")
	if err != nil {
		return nil, err
	}
	all := func(name, title string, m loadgen.Message, rate int) *contest {
		p := s.plan(s.peer, m)
		p.Rate, p.Redis = rate, s.peerRedis
		rows := append([]*row{{name: s.peerName, measure: load(p)}}, buckets.rows(p)...)
		return &contest{name: name, title: title, fixedRate: rate > 0, rows: append(rows, windows.rows(p)...)}
	}
	const rate = 2000
	one := limit("user")
	return []*contest{
		all("peer-one", "1 descriptor", one, 0), all("peer-ten", "10 descriptors", limit(tenKeys...), 0),
		all("peer-rate", "1 descriptor, "+loadgen.Thousands(rate)+" requests/s, at fixed times", one, rate),
	}, nil
}

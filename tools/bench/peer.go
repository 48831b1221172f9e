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
	redis := []string{"REDIS_URL=" + s.redis, "REDIS_TIMEOUT=1s"}
	buckets, err := s.services(ctx, redis...)
	if err != nil {
		return nil, err
	}
	windows, err := s.services(ctx, append(redis, "DEFAULT_ALGORITHM=fixed_window")...)
	if err != nil {
		return nil, err
	}
	one, err := limit("user")
	if err != nil {
		return nil, err
	}
	ten, err := limit(tenKeys...)
	if err != nil {
		return nil, err
	}
	all := func(name, title string, m loadgen.Message, rate int) *contest {
		p := s.plan(s.peer, m)
		p.Rate, p.Redis = rate, s.peerRedis
		c := &contest{name: name, title: title, fixedRate: rate > 0, rows: []*row{{name: s.peerName, measure: load(p)}}}
		p.Redis = s.redis
		for _, algorithm := range []struct {
			name     string
			services []service
		}{{"token bucket", buckets}, {"fixed window", windows}} {
			for _, service := range algorithm.services {
				p.Address = service.address
				c.rows = append(c.rows, &row{name: algorithm.name + service.name, measure: load(p)})
			}
		}
		c.pair()
		return c
	}
	const rate = 2000
	return []*contest{
		all("peer-one", "1 descriptor", one, 0), all("peer-ten", "10 descriptors", ten, 0),
		all("peer-rate", "1 descriptor, "+loadgen.Thousands(rate)+" requests/s, at fixed times", one, rate),
	}, nil
}

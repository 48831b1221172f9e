package main

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// leaseRules have a limit for each length of a lease. No load uses them up.
const leaseRules = `domain: leases
descriptors:
  - {key: none, rate_limit: &limit {unit: day, requests_per_unit: 4000000000, algorithm: sliding_window_counter}}
  - {key: "10", rate_limit: {<<: *limit, lease: 10}}
  - {key: "50", rate_limit: {<<: *limit, lease: 50}}
`

// leaseSeries has one hot key with leases of several lengths and few requests in flight, and Redis near or far.
func leaseSeries(ctx context.Context, s *stage) ([]*contest, error) {
	scene := s.scenes[0]
	if err := os.WriteFile(filepath.Join(scene.dir, "rules", "leases.yaml"), []byte(leaseRules), 0o644); err != nil {
		return nil, err
	}
	far, err := delayed(ctx, s.redis, time.Millisecond)
	if err != nil {
		return nil, err
	}
	var all []*contest
	for _, redis := range []struct{ name, place, address string }{
		{"near", "Redis on this machine", s.redis}, {"far", "Redis 1 ms away", far},
	} {
		server, err := s.startService(ctx, scene.binary, scene.env("REDIS_URL="+redis.address, "REDIS_TIMEOUT=1s"))
		if err != nil {
			return nil, err
		}
		closed := &contest{name: "lease-" + redis.name, title: "One hot key, 4 requests in flight, " + redis.place}
		open := &contest{
			name: "lease-" + redis.name + "-rate", title: "One hot key, 2,000 requests/s, " + redis.place, fixedRate: true,
		}
		for _, lease := range []string{"none", "10", "50"} {
			p := s.plan(server.address, limitOf("leases", lease))
			p.Keys.Number, p.Redis, p.Connections, p.InFlight = 1, s.redis, 1, 4
			closed.rows = append(closed.rows, &row{name: "lease: " + lease, measure: load(p)})
			p.Connections, p.InFlight, p.Rate = s.connections, s.inFlight, 2000
			open.rows = append(open.rows, &row{name: "lease: " + lease, measure: load(p)})
		}
		all = append(all, closed, open)
	}
	return all, nil
}

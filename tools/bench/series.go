package main

import (
	"context"
	"fmt"

	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// cast has the servers of the series that compare.
type cast struct {
	*stage
	empty, tuned          *server
	memory, plain, shared []service
}

func (s *stage) cast(ctx context.Context) (c *cast, err error) {
	c = &cast{stage: s}
	if c.empty, err = s.empty(ctx); err == nil {
		c.tuned, err = s.empty(ctx, "GOGC=800")
	}
	if err == nil {
		c.memory, err = s.services(ctx)
	}
	if err == nil {
		c.plain, err = s.services(ctx, "RESPONSE_HEADERS=off", "RESPONSE_BODY=off")
	}
	if err == nil {
		c.shared, err = s.services(ctx, "REDIS_URL="+s.redis, "REDIS_TIMEOUT=1s")
	}
	return c, err
}

// contest returns rows of the empty handler and the services, which receive the same plan. The rows of
// services with Redis measure it.
func (c *cast) contest(name, title string, p loadgen.Plan, memory, shared bool) *contest {
	to := func(address, redis string) loadgen.Plan {
		p.Address, p.Redis = address, redis
		return p
	}
	all := &contest{name: name, title: title, rows: []*row{
		{name: "empty handler", measure: load(to(c.empty.address, ""))},
	}}
	if memory {
		for _, s := range c.memory {
			all.rows = append(all.rows, &row{name: "in memory" + s.name, measure: load(to(s.address, ""))})
		}
	}
	if shared {
		for _, s := range c.shared {
			all.rows = append(all.rows, &row{name: "in Redis" + s.name, measure: load(to(s.address, c.redis))})
		}
	}
	all.pair()
	return all
}

// mainSeries has the closed loops: what each server can do at most.
func mainSeries(ctx context.Context, s *stage) ([]*contest, error) {
	c, err := s.cast(ctx)
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
	hot, err := limit("hot")
	if err != nil {
		return nil, err
	}
	collector, err := s.collector()
	if err != nil {
		return nil, err
	}
	memory := c.contest("memory", "ShouldRateLimit in memory", s.plan("", one), true, false)
	memory.rows = append(memory.rows, &row{name: "empty handler, GOGC=800", measure: load(s.plan(c.tuned.address, one))})
	for _, server := range c.plain {
		memory.rows = append(memory.rows, &row{name: "in memory, no headers" + server.name,
			measure: load(s.plan(server.address, one))})
	}
	for _, server := range c.memory {
		traced := s.plan(server.address, one)
		traced.Client = loadgen.Traced
		memory.rows = append(memory.rows, &row{name: "in memory, Envoy with tracing" + server.name, measure: load(traced)})
	}
	spans, err := s.services(ctx, "TRACING_ENABLED=true", "TRACING_SAMPLING_RATE=0.1",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+collector)
	if err != nil {
		return nil, err
	}
	for _, server := range spans {
		memory.rows = append(memory.rows, &row{name: "in memory, a span for each tenth request" + server.name,
			measure: load(s.plan(server.address, one))})
	}
	memory.pair()
	redis := c.contest("redis", "ShouldRateLimit in Redis", s.plan("", one), false, true)
	redis.rows = append(redis.rows, &row{name: figures.Raw, measure: direct(s.redis, rawCalls())})
	hotKey := s.plan("", hot)
	hotKey.Keys.Number = 1
	checks, err := c.checks()
	if err != nil {
		return nil, err
	}
	return []*contest{
		memory, redis, scripts(s.redis),
		c.contest("ten", "10 descriptors, in Redis", s.plan("", ten), false, true),
		c.contest("hot", "One key, over its limit", hotKey, true, true),
		checks,
	}, nil
}

// checks returns the rows of ext_authz.
func (c *cast) checks() (*contest, error) {
	all := &contest{name: "check", title: "Check of some 20 headers, in memory"}
	add := func(name, address, header, value string) error {
		headers := map[string]string{}
		if header != "" {
			headers[header] = value
		}
		m, err := loadgen.Check(loadgen.HTTPRequest{Method: "GET", Host: "shop.example", Path: "/v1/users/7?page=2",
			Headers: headers})
		all.rows = append(all.rows, &row{name: name, measure: load(c.plan(address, m))})
		return err
	}
	if err := add("empty handler", c.empty.address, "", ""); err != nil {
		return nil, err
	}
	for _, s := range c.memory {
		if err := add("API key, one bucket"+s.name, s.address, "x-api-key", s.build.scene.apiKey); err != nil {
			return nil, err
		}
		err := add("JWT, verified before, one bucket"+s.name, s.address, "authorization", "Bearer "+s.build.scene.token)
		if err != nil {
			return nil, err
		}
	}
	all.pair()
	return all, nil
}

// lowSeries has open loops: what a request costs when few are in flight.
func lowSeries(ctx context.Context, s *stage) ([]*contest, error) {
	c, err := s.cast(ctx)
	if err != nil {
		return nil, err
	}
	m, err := limit("user")
	if err != nil {
		return nil, err
	}
	var all []*contest
	for _, rate := range []int{5000, 2000} {
		p := s.plan("", m)
		p.Rate = rate
		one := c.contest(fmt.Sprint("rate-", rate), loadgen.Thousands(rate)+" requests/s, at fixed times", p, true, true)
		one.fixedRate = true
		all = append(all, one)
	}
	p := s.plan("", m)
	p.Connections, p.InFlight = 1, 1
	return append(all, c.contest("one", "One request at a time, one connection", p, true, true)), nil
}

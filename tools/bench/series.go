package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// cast has the servers of the series that compare.
type cast struct {
	*stage
	empty, tuned          *server
	memory, plain, shared group
}

func (s *stage) cast(ctx context.Context) (*cast, error) {
	c := &cast{stage: s}
	var errs [5]error
	c.empty, errs[0] = s.empty(ctx)
	c.tuned, errs[1] = s.empty(ctx, "GOGC=800")
	c.memory, errs[2] = s.services(ctx, "in memory", "")
	c.plain, errs[3] = s.services(ctx, "in memory, no headers", "", "RESPONSE_HEADERS=off", "RESPONSE_BODY=off")
	c.shared, errs[4] = s.services(ctx, "in Redis", s.redis)
	return c, errors.Join(errs[:]...)
}

// contest returns rows of the empty handler and the services, which receive the same plan.
func (c *cast) contest(name, title string, p loadgen.Plan, groups ...group) *contest {
	p.Address = c.empty.address
	all := &contest{name: name, title: title, rows: []*row{{name: "empty handler", measure: load(p)}}}
	for _, g := range groups {
		all.rows = append(all.rows, g.rows(p)...)
	}
	return all
}

// mainSeries has the closed loops: what each server can do at most.
func mainSeries(ctx context.Context, s *stage) ([]*contest, error) {
	c, err := s.cast(ctx)
	if err != nil {
		return nil, err
	}
	one := s.plan("", limit("user"))
	memory := c.contest("memory", "ShouldRateLimit in memory", one, c.memory)
	tuned, traced := one, one
	tuned.Address, traced.Client = c.tuned.address, loadgen.Traced
	memory.rows = append(memory.rows, &row{name: "empty handler, GOGC=800", measure: load(tuned)})
	memory.rows = append(memory.rows, c.plain.rows(one)...)
	memory.rows = append(memory.rows, group{"in memory, Envoy with tracing", "", c.memory.services}.rows(traced)...)
	redis := c.contest("redis", "ShouldRateLimit in Redis", one, c.shared)
	redis.rows = append(redis.rows, &row{name: figures.Raw, measure: direct(s.redis, rawCalls())})
	hotKey := s.plan("", limit("hot"))
	hotKey.Keys.Number = 1
	return []*contest{
		memory, redis, scripts(s.redis),
		c.contest("ten", "10 descriptors, in Redis", s.plan("", limit(tenKeys...)), c.shared),
		c.contest("hot", "One key, over its limit", hotKey, c.memory, c.shared),
		c.checks(),
	}, nil
}

// checks returns the rows of ext_authz.
func (c *cast) checks() *contest {
	all := &contest{name: "check", title: "Check of some 20 headers, in memory"}
	add := func(name, address string, headers map[string]string) {
		m := must(loadgen.Check(loadgen.HTTPRequest{Method: "GET", Host: "shop.example", Path: "/v1/users/7?page=2",
			Headers: headers}))
		all.rows = append(all.rows, &row{name: name, measure: load(c.plan(address, m))})
	}
	add("empty handler", c.empty.address, nil)
	for _, s := range c.memory.services {
		add("API key, one bucket"+s.scene.suffix, s.address, map[string]string{"x-api-key": s.scene.apiKey})
		add("JWT, verified before, one bucket"+s.scene.suffix, s.address,
			map[string]string{"authorization": "Bearer " + s.scene.token})
	}
	return all
}

// lowSeries has open loops: what a request costs when few are in flight.
func lowSeries(ctx context.Context, s *stage) ([]*contest, error) {
	c, err := s.cast(ctx)
	if err != nil {
		return nil, err
	}
	p := s.plan("", limit("user"))
	var all []*contest
	for _, p.Rate = range []int{20_000, 5000, 2000} {
		title := loadgen.Thousands(p.Rate) + " requests/s, at fixed times"
		one := c.contest(fmt.Sprint("rate-", p.Rate), title, p, c.memory, c.shared)
		one.fixedRate = true
		all = append(all, one)
	}
	p.Rate, p.Connections, p.InFlight = 0, 1, 1
	return append(all, c.contest("one", "One request at a time, one connection", p, c.memory, c.shared)), nil
}

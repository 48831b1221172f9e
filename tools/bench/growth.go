package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/tools/loadgen"
)

// growthSeries shows what a request costs with more keys, descriptors, rules and connections. Each row has a server.
func growthSeries(ctx context.Context, s *stage) ([]*contest, error) {
	keysInMemory := &contest{name: "keys-memory", title: "Keys, all of them with a bucket in memory", axis: "keys"}
	keysInRedis := &contest{name: "keys-redis", title: "Keys, all of them with a bucket in Redis", axis: "keys"}
	for n := 1000; n <= s.mostKeys; n *= 10 {
		memory := s.grown(n, []string{"user"}, "MEMORY_MAX_BUCKETS="+strconv.Itoa(2*s.mostKeys))
		shared := s.grown(n, []string{"user"}, "REDIS_URL="+s.redis, "REDIS_TIMEOUT=1s")
		shared.plan.Redis = s.redis
		memory.plan.Keys.Number, shared.plan.Keys.Number = n, n
		memory.fill, shared.fill = true, true
		keysInMemory.rows = append(keysInMemory.rows, &memory.row)
		keysInRedis.rows = append(keysInRedis.rows, &shared.row)
	}
	descriptors := &contest{name: "descriptors", title: "Descriptors, in memory", axis: "descriptors"}
	for _, n := range []int{1, 2, 3, 5, 10} {
		descriptors.rows = append(descriptors.rows, &s.grown(n, tenKeys[:n]).row)
	}
	rules := &contest{name: "rules", title: "Rules, one for each value of a key, in memory", axis: "rules"}
	for n := 10; n <= 100_000; n *= 10 {
		root := filepath.Join(s.dir, "rules-"+strconv.Itoa(n))
		if err := writeRules(filepath.Join(root, "rules"), n); err != nil {
			return nil, err
		}
		g := s.grown(n, []string{"rule"}, "RUNTIME_ROOT="+root, "MERGE_DOMAIN_CONFIG=true")
		g.plan.Keys.Number = n
		rules.rows = append(rules.rows, &g.row)
	}
	cert, key, config, err := certificate(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	return []*contest{
		keysInMemory, keysInRedis, descriptors, rules, s.manyConnections("connections", "in memory", nil),
		s.manyConnections("connections-tls", "in memory, with TLS", config, "GRPC_SERVER_USE_TLS=true",
			"GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key),
	}, nil
}

// manyConnections returns rows with more and more connections.
func (s *stage) manyConnections(name, how string, config *tls.Config, env ...string) *contest {
	const rate = 5000 // the same for all rows: a closed loop needs a request in flight on each connection
	title := "Connections, " + loadgen.Thousands(rate) + " requests/s, " + how
	all := &contest{name: name, title: title, axis: "connections", fixedRate: true}
	for n := 1; n <= s.mostConnections; n *= 10 {
		g := s.grown(n, []string{"user"}, append(env, "GRPC_MAX_CONNECTIONS=20000")...)
		g.plan.Connections, g.plan.InFlight, g.plan.Rate, g.plan.TLS = n, max(n, s.inFlight), rate, config
		g.idle = n >= 1000 // with fewer, other memory hides that of connections
		all.rows = append(all.rows, &g.row)
	}
	return all
}

// grown is a row with a server of its own.
type grown struct {
	row
	stage  *stage
	plan   loadgen.Plan
	env    []string
	server *server
	fill   bool // send each key once before
	idle   bool // measure connections without requests before
}

func (s *stage) grown(value int, keys []string, env ...string) *grown {
	g := &grown{row: row{name: loadgen.Thousands(value), value: float64(value)}, stage: s, env: env}
	g.plan = s.plan("", limit(keys...))
	g.prepare, g.done = g.start, func() {
		if g.server != nil {
			g.server.stop()
		}
	}
	g.measure = func(ctx context.Context, each time.Duration) (sample, error) { return load(g.plan)(ctx, each) }
	return g
}

// start starts the server and brings it into the state of the row.
func (g *grown) start(ctx context.Context) (err error) {
	scene := g.stage.scenes[0]
	if g.server, err = g.stage.startService(ctx, scene.binary, scene.env(g.env...)); err != nil {
		return err
	}
	g.plan.Address = g.server.address
	if g.idle {
		// What the first requests allocate is not counted. They use few connections, whose memory the others would use again.
		few := g.stage.plan(g.plan.Address, g.plan.Message)
		few.TLS = g.plan.TLS
		if _, err := load(few)(ctx, time.Second); err != nil {
			return err
		}
		plan := g.plan
		plan.Duration = time.Second
		if g.row.idle, err = loadgen.IdleMemory(ctx, plan); err != nil {
			return err
		}
	}
	if !g.fill {
		return nil
	}
	fill := g.plan
	fill.Keys.Distribution, fill.Count, fill.Connections = loadgen.Sequence, fill.Keys.Number, 1
	_, err = load(fill)(ctx, loadgen.MostDuration)
	return err
}

// writeRules writes a rule for each of n values, into several files because the size of one is bounded.
func writeRules(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const most = 40_000 // rules in a file
	for first := 0; first < n; first += most {
		var b strings.Builder
		b.WriteString("domain: bench\ndescriptors:\n")
		for i := first; i < min(first+most, n); i++ {
			fmt.Fprintf(&b, "  - {key: rule, value: \"%08d\", rate_limit: {unit: hour, requests_per_unit: 1000000}}\n", i)
		}
		file := filepath.Join(dir, fmt.Sprintf("%08d.yaml", first))
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

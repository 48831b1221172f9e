package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/extauthz/extauthz/tools/loadgen"
)

// keys is how many keys the requests of most rows have.
const keys = 10_000

// stage has what the rows of a series share.
type stage struct {
	options
	dir     string
	servers []*server
	scenes  []*scene // of this build, and of the base if there is one
}

// ofBase is the suffix of the names of the rows of the base.
const ofBase = ", base"

// start builds the service and starts Redis.
func (s *stage) start(ctx context.Context) error {
	binary := filepath.Join(s.dir, "extauthz")
	if err := compile(ctx, binary); err != nil {
		return err
	}
	if err := s.addBuild(ctx, "", "this", binary); err != nil {
		return err
	}
	if s.base != "" {
		// The base has its own scene, because its file of API keys may have another format.
		if err := s.addBuild(ctx, ofBase, "base", s.base); err != nil {
			return fmt.Errorf("-base: %w", err)
		}
	}
	if s.redis != "" {
		return nil
	}
	redis, err := s.launch(ctx, nil, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--loglevel", "warning") // it keeps nothing on disk
	if err != nil {
		return fmt.Errorf("start Redis, or name one with -redis: %w", err)
	}
	s.redis = redis.address
	return nil
}

func (s *stage) addBuild(ctx context.Context, suffix, dir, binary string) error {
	scene, err := newScene(ctx, filepath.Join(s.dir, dir), binary)
	if err != nil {
		return err
	}
	scene.suffix = suffix
	s.scenes = append(s.scenes, scene)
	return nil
}

func (s *stage) stop() {
	for _, one := range s.servers {
		one.stop()
	}
}

// empty starts the empty handler.
func (s *stage) empty(ctx context.Context, env ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return s.launch(ctx, env, self, emptyServer, "127.0.0.1:"+port)
}

// service is a running build of the service.
type service struct {
	*server
	scene *scene
}

// group is running services with the same settings, and their Redis, "" for none.
type group struct {
	name, redis string
	services    []service
}

// services starts every build.
func (s *stage) services(ctx context.Context, name, redis string, env ...string) (group, error) {
	g := group{name: name, redis: redis}
	if redis != "" {
		env = append(env, "REDIS_URL="+redis, "REDIS_TIMEOUT=1s")
	}
	for _, b := range s.scenes {
		one, err := s.startService(ctx, b.binary, b.env(env...))
		if err != nil {
			return g, err
		}
		g.services = append(g.services, service{one, b})
	}
	return g, nil
}

// rows returns a row for each service, all with the same plan. The rows of services with Redis measure it.
func (g group) rows(p loadgen.Plan) (rows []*row) {
	for _, s := range g.services {
		p.Address, p.Redis = s.address, g.redis
		rows = append(rows, &row{name: g.name + s.scene.suffix, measure: load(p)})
	}
	return rows
}

// plan returns the load of most rows.
func (s *stage) plan(address string, m loadgen.Message) loadgen.Plan {
	return loadgen.Plan{
		Address: address, Message: m, Client: loadgen.Envoy,
		Keys:        loadgen.Keys{Distribution: loadgen.Uniform, Number: keys},
		Connections: s.connections, InFlight: s.inFlight, Timeout: loadgen.MostTimeout,
	}
}

// tenKeys are the keys of the rows with 10 descriptors.
var tenKeys = []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"}

// limit returns a request with a descriptor for each of these keys.
func limit(names ...string) loadgen.Message { return limitOf("bench", names...) }

// limitOf is limit in another domain.
func limitOf(domain string, names ...string) loadgen.Message {
	var list []*descriptorv3.RateLimitDescriptor
	for _, name := range names {
		list = append(list, &descriptorv3.RateLimitDescriptor{
			Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: name, Value: loadgen.Placeholder}},
		})
	}
	return must(loadgen.RateLimit(domain, list))
}

// must returns a request that the benchmark has made. Such a request can be encoded.
func must(m loadgen.Message, err error) loadgen.Message {
	if err != nil {
		panic(err)
	}
	return m
}

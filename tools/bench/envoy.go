package main

import (
	"context"
	_ "embed"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/tools/loadgen"
)

//go:embed envoy.yaml
var envoyConfig string

// envoySeries has the services behind a real Envoy, whose CPU time is the larger part.
func envoySeries(ctx context.Context, s *stage) ([]*contest, error) {
	c, err := s.cast(ctx)
	if err != nil {
		return nil, err
	}
	all := &contest{name: "envoy", title: "Behind Envoy, with one worker; CPU is that of Envoy"}
	add := func(name, service string) error {
		envoy, err := s.startEnvoy(ctx, service)
		if err != nil {
			return err
		}
		p := s.plan(envoy.address, loadgen.Get("/", "x-user"))
		all.rows = append(all.rows, &row{name: name, measure: load(p)})
		return nil
	}
	if err := add("empty handler", c.empty.address); err != nil {
		return nil, err
	}
	for _, store := range []struct {
		name     string
		services []service
	}{{"in memory", c.memory}, {"in Redis", c.shared}} {
		for _, one := range store.services {
			if err := add(store.name+one.name, one.address); err != nil {
				return nil, err
			}
		}
	}
	all.pair()
	return []*contest{all}, nil
}

// startEnvoy starts an Envoy that calls a rate limit service.
func (s *stage) startEnvoy(ctx context.Context, service string) (*server, error) {
	address, front, err := addressOf()
	if err != nil {
		return nil, err
	}
	_, upstream, err := addressOf()
	if err != nil {
		return nil, err
	}
	at, err := net.ResolveTCPAddr("tcp", service)
	if err != nil {
		return nil, err
	}
	config := strings.NewReplacer("FRONT", front, "UPSTREAM", upstream, "HOST", at.IP.String(), "SERVICE",
		strconv.Itoa(at.Port)).Replace(envoyConfig)
	file := filepath.Join(s.dir, "envoy-"+front+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	binary := filepath.Join(".tools", "bin", "envoy")
	if _, err := os.Stat(binary); err != nil {
		binary = "envoy"
	}
	envoy, err := launch(ctx, address, nil, binary, "--config-path", file, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "error")
	if err == nil {
		s.servers = append(s.servers, envoy)
	}
	return envoy, err
}

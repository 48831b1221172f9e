package main

import (
	"context"
	_ "embed"
	"net"
	"os"
	"path/filepath"
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
	p := s.plan("", loadgen.Get("/", "x-user"))
	empty := group{name: "empty handler", services: []service{{c.empty, new(scene)}}} // of no build
	for _, g := range []group{empty, c.memory, c.shared} {
		g.redis = "" // it is not measured
		for i, one := range g.services {
			if g.services[i].server, err = s.startEnvoy(ctx, one.address); err != nil {
				return nil, err
			}
		}
		all.rows = append(all.rows, g.rows(p)...)
	}
	return []*contest{all}, nil
}

// startEnvoy starts an Envoy that calls a rate limit service.
func (s *stage) startEnvoy(ctx context.Context, service string) (*server, error) {
	upstream, err := freePort()
	if err != nil {
		return nil, err
	}
	host, servicePort, err := net.SplitHostPort(service)
	if err != nil {
		return nil, err
	}
	config := strings.NewReplacer("FRONT", port, "UPSTREAM", upstream, "HOST", host, "SERVICE", servicePort).
		Replace(envoyConfig)
	binary := filepath.Join(".tools", "bin", "envoy")
	if _, err := os.Stat(binary); err != nil {
		binary = "envoy"
	}
	return s.launch(ctx, nil, binary, "--config-yaml", config, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "error")
}

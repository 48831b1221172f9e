package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// benchRules has a limit by user, and a policy with a limit by owner. Both are too high to deny.
const benchRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10000000}
  - key: owner
    rate_limit: {unit: minute, requests_per_unit: 40000000}
authz:
  credentials:
    - api_key: {header: x-api-key}
    - jwt: {issuer: bench, audiences: [bench], algorithms: [EdDSA], jwks_file: %s}
  limits:
    - actions: [{credential: {field: owner}}]
`

const benchSecret = "API_KEY_SECRET=the-secret-of-the-benchmark"

// scene has what the servers of one build need: the binary, rules, an API key and a token.
type scene struct{ dir, binary, apiKey, token string }

func newScene(ctx context.Context, dir, binary string) (*scene, error) {
	s := &scene{dir: dir, binary: binary}
	if err := os.MkdirAll(filepath.Join(dir, "rules"), 0o755); err != nil {
		return nil, err
	}
	if err := s.makeToken(); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	rules := fmt.Sprintf(benchRules, s.jwksFile())
	if err := os.WriteFile(filepath.Join(dir, "rules", "bench.yaml"), []byte(rules), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.binary, "keys", "create", "--owner", "bench", "--file", s.keysFile())
	cmd.Env = append(os.Environ(), benchSecret)
	key, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("extauthz keys create: %w", err)
	}
	s.apiKey = strings.TrimSpace(string(key))
	return s, nil
}

func (s *scene) jwksFile() string { return filepath.Join(s.dir, "jwks.json") }
func (s *scene) keysFile() string { return filepath.Join(s.dir, "keys") }

func (s *scene) makeToken() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: public, KeyID: "1", Algorithm: "EdDSA", Use: "sig"},
	}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.jwksFile(), set, 0o644); err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private},
		(&jose.SignerOptions{}).WithHeader("kid", "1"))
	if err != nil {
		return err
	}
	s.token, err = jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: "bench", Audience: jwt.Audience{"bench"}, Subject: "bench",
		Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).Serialize()
	return err
}

// env returns the environment of a service with these settings.
func (s *scene) env(settings ...string) []string {
	return append(settings, "RUNTIME_ROOT="+s.dir, "RUNTIME_APPDIRECTORY=rules", "DRAIN_DELAY=0s", "LOG_LEVEL=ERROR",
		"API_KEYS_FILE="+s.keysFile(), benchSecret)
}

// start builds the service and starts all servers.
func start(ctx context.Context, dir string, o options) (_ []*comparison, stop func(), err error) {
	var started []*server
	stop = func() {
		for _, s := range started {
			s.stop()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	launch := func(name string, env []string, args ...string) *server {
		if err != nil {
			return nil
		}
		var one *server
		one, err = startServer(ctx, name, args, env)
		if err == nil {
			started = append(started, one)
		}
		return one
	}
	empty := launch("empty handler", nil, self, emptyServer)
	tuned := launch("empty handler, GOGC=800", []string{"GOGC=800"}, self, emptyServer)
	limits := &comparison{title: "ShouldRateLimit", call: callLimit, servers: []*server{empty, tuned}}
	checks := &comparison{title: "Check", call: callCheck, servers: []*server{empty, tuned}}

	binary := filepath.Join(dir, "extauthz")
	if err := build(ctx, binary); err != nil {
		return nil, nil, err
	}
	add := func(of string, s *scene) {
		plain := launch("memory, no headers"+of, s.env("RESPONSE_HEADERS=off", "RESPONSE_BODY=off"), s.binary)
		memory := launch("memory"+of, s.env(), s.binary)
		limits.servers = append(limits.servers, plain, memory)
		if o.redis != "" {
			redis := launch("redis"+of, s.env("REDIS_URL="+o.redis, "REDIS_TIMEOUT=1s"), s.binary)
			limits.servers = append(limits.servers, redis)
		}
		checks.servers = append(checks.servers,
			memory.as("API key"+of, "x-api-key", s.apiKey),
			memory.as("JWT, cached"+of, "authorization", "Bearer "+s.token))
	}
	s, err := newScene(ctx, filepath.Join(dir, "this"), binary)
	if err != nil {
		return nil, nil, err
	}
	add("", s)
	if o.base != "" {
		// The base has its own scene, because its file of API keys may have another format.
		if s, err = newScene(ctx, filepath.Join(dir, "base"), o.base); err != nil {
			return nil, nil, fmt.Errorf("-base: %w", err)
		}
		add(", base", s)
		limits.pair()
		checks.pair()
	}
	return []*comparison{limits, checks}, stop, err
}

// pair sets the base of each server of this build: the same server of the other build. The order of servers is: two
// empty handlers, this build, the other build.
func (c *comparison) pair() {
	service := c.servers[2:]
	for i, s := range service[:len(service)/2] {
		if s != nil { // it did not start
			s.base = service[len(service)/2+i]
		}
	}
}

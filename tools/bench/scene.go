package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
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

//go:embed rules.yaml
var benchRules string

// benchPolicy is added to the rules. Its limit by owner is too high to deny.
const benchPolicy = `  - key: owner
    rate_limit: {unit: minute, requests_per_unit: 40000000}
authz:
  credentials:
    - api_key: {header: x-api-key}
    - jwt: {issuer: bench, audiences: [bench], algorithms: [EdDSA], jwks_file: %s}
  limits:
    - actions: [{credential: {field: owner}}]
`

const benchSecret = "API_KEY_SECRET=the-secret-of-the-benchmark"

// scene has what the servers of one build need: the binary, rules, an API key and a token. suffix ends the names of the
// rows of the build.
type scene struct{ suffix, dir, binary, apiKey, token string }

func newScene(ctx context.Context, dir, binary string) (*scene, error) {
	s := &scene{dir: dir, binary: binary}
	if err := os.MkdirAll(filepath.Join(dir, "rules"), 0o755); err != nil {
		return nil, err
	}
	if err := s.makeToken(); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	rules := benchRules + fmt.Sprintf(benchPolicy, s.jwksFile())
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
	return append([]string{"RUNTIME_ROOT=" + s.dir, "RUNTIME_APPDIRECTORY=rules", "DRAIN_DELAY=0s", "LOG_LEVEL=ERROR",
		"DEFAULT_ALGORITHM=token_bucket", "API_KEYS_FILE=" + s.keysFile(), benchSecret}, settings...)
}

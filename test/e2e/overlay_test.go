package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/extauthz/extauthz/test/testenv/xdsserver"
)

// TestOverlay: an overlay gives limits of an xDS server names, and one of them replaces another. extauthz check finds
// both in /rlconfig, and names the rule that a misspelt entry means.
func TestOverlay(t *testing.T) {
	t.Parallel()
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(rule string) {
		content := `
domains:
  - domain: sample
    rules:
      - {rule: masked_remote_address, rate_limit: {name: per-address}}
      - {rule: ` + rule + `, rate_limit: {name: per-user, replaces: [{name: per-address}]}}
`
		if err := os.WriteFile(overlay, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("action_post.user")
	type descriptor = ratelimitv3.RateLimitDescriptor
	limit := func(key string, requests uint32) *descriptor {
		return &descriptor{Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{
			Unit: ratelimitv3.RateLimitUnit_DAY, RequestsPerUnit: requests,
		}}
	}
	server := xdsserver.Start(t)
	server.Send("1", &ratelimitv3.RateLimitConfig{Name: "sample", Domain: "sample", Descriptors: []*descriptor{
		limit("masked_remote_address", 1),
		{Key: "action", Value: "post", Descriptors: []*descriptor{limit("user", 3)}},
	}})
	service := startService(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+server.Addr,
		"CONFIG_GRPC_XDS_OVERLAY="+overlay)
	envoy := startEnvoy(t, service.grpcPort, without(extAuthz))
	if allowed, _ := envoy.tally(t, 4, call{method: http.MethodPost, path: "/posts"}); allowed != 3 {
		t.Errorf("%d of 4 requests pass, want 3: the limit per user replaces that per address", allowed)
	}
	check := func() string {
		out, err := exec.Command(binary, "check", "--overlay", overlay, "--rlconfig", service.debug).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := check(); !strings.Contains(got, "compared with 2 rules") || strings.Contains(got, "warning") {
		t.Errorf("check: %s", got)
	}
	write("action_pots.user")
	if got := check(); !strings.Contains(got, "did you mean `action_post.user`?") {
		t.Errorf("check of a misspelt rule: %s", got)
	}
	envoy.checkNoFailures(t)
}

package observability

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// ofRatelimit matches the lines of metrics whose names envoyproxy/ratelimit chose. promtool wants others.
var ofRatelimit = regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?ratelimit_.*\n`)

// TestMetrics checks the metrics of the service with promtool.
func TestMetrics(t *testing.T) {
	service := startService(t)
	envoy := startEnvoy(t, service.GRPCPort)
	var text string
	testenv.Eventually(t, func() error {
		if err := send(envoy.Listener("ingress")); err != nil {
			return err
		}
		resp, err := http.Get("http://" + testenv.Loopback(service.DebugPort) + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		text = string(body)
		for _, late := range []string{"extauthz_jwks_last_success", "extauthz_request_duration_seconds"} {
			if err == nil && !strings.Contains(text, late) {
				err = fmt.Errorf("no %s yet", late)
			}
		}
		return err
	}, "all metrics to exist")
	if err := promtool(t, ofRatelimit.ReplaceAllString(text, ""), "check", "metrics"); err != nil {
		t.Error(err)
	}
}

package service

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestIgnoredSettingsAreNamed sets each setting that has no effect. The service starts, and the log has one line with
// the reason for each, also with STRICT_ENVIRONMENT.
func TestIgnoredSettingsAreNamed(t *testing.T) {
	t.Parallel()
	environ := []string{"RUNTIME_ROOT=" + testenv.RulesRoot(t), "STRICT_ENVIRONMENT=true", "GRPC_PLAINTEXT=allow"}
	for name := range settings.WithoutEffect {
		environ = append(environ, name+"=1")
	}
	out := testenv.Service(t, program, environ...).Output()
	for name, why := range settings.WithoutEffect {
		want := name + " has no effect: " + why
		if n := strings.Count(out, want); n != 1 {
			t.Errorf("%d lines with %q, want 1", n, want)
		}
	}
}

// TestUnknownSettingsAreNamed starts the service in a pod of Envoy Gateway with service links and two unknown settings.
// The log has one line about both.
func TestUnknownSettingsAreNamed(t *testing.T) {
	t.Parallel()
	out := testenv.Service(t, program, "RUNTIME_ROOT="+testenv.RulesRoot(t), "LIMIT_ALL_DESCRIPTORS=true",
		"PROMETHEUS_ADDRESS=:9090", "GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt", "REDIS_SERVICE_HOST=10.0.0.9",
		"REDIS_SERVICE_PORT=6379", "REDIS_PORT=tcp://10.0.0.9:6379").Output()
	const want = `level=WARN msg="an environment variable has no effect" warning="not settings of this service: ` +
		`LIMIT_ALL_DESCRIPTORS, PROMETHEUS_ADDRESS (did you mean PROMETHEUS_ADDR?)"`
	if strings.Count(out, want) != 1 || strings.Count(out, "an environment variable has no effect") != 1 {
		t.Errorf("want one line of this kind, %s, in\n%s", want, out)
	}
}

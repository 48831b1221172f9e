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

package migrate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSettings tells what becomes of each variable, and never shows a value. The reasons are those of the start.
func TestSettings(t *testing.T) {
	env := map[string]string{
		"LOG_LEVEL": "debug", "REDIS_URL": "redis://redis:6379", "RUNTIME_WATCH_ROOT": "false", "BACKEND_TYPE": "memcache",
		"PORT": "many", "REDIS_AUTH": "hunter2hunter2", "SOME_VARIABLE": "hunter2", "RUNTIME_ROOTT": "/data",
		"PROMETHEUS_ADDRESS": ":9090", "USE_MAGIC": "true", "REDIS_SERVICE_HOST": "10.0.0.9", "REDIS_SERVICE_PORT": "6379",
		"COMPATIBILITY": "strict",
	}
	list, s := Settings(env)
	var got strings.Builder
	for _, m := range list {
		fmt.Fprintf(&got, "%s: %s: %s\n", m.Name, m.Verdict, m.Reason)
	}
	want := `BACKEND_TYPE: refused: memcached cannot decide exactly and is not supported: want memory or redis
COMPATIBILITY: stays: 
LOG_LEVEL: stays: 
PORT: refused: want a port, 0 to 65535
PROMETHEUS_ADDRESS: unknown: it looks like a setting, but extauthz does not know it (did you mean PROMETHEUS_ADDR?)
REDIS_AUTH: stays: 
REDIS_SERVICE_HOST: unknown: it is no setting of either service
REDIS_SERVICE_PORT: unknown: it is no setting of either service
REDIS_URL: stays: 
RUNTIME_ROOTT: unknown: it looks like a setting, but extauthz does not know it (did you mean RUNTIME_ROOT?)
RUNTIME_WATCH_ROOT: no effect: every change of the rule files is noticed
SOME_VARIABLE: unknown: it is no setting of either service
USE_MAGIC: unknown: it looks like a setting, but extauthz does not know it
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	if !s.Strict() || s.Listeners.Port != 8080 {
		t.Errorf("settings without the refused variables: strict %t, port %d", s.Strict(), s.Listeners.Port)
	}
	together := map[string]string{"BACKEND_TYPE": "redis"}
	const needs = "BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379"
	if list, _ := Settings(together); len(list) != 1 || list[0].Verdict != Refused || list[0].Reason != needs {
		t.Errorf("got %v, want that %s", list, needs)
	}
	if _, s := Settings(map[string]string{"REDIS_TLS_CLIENT_CERT": "/cert", "BACKEND_TYPE": "redis"}); s == nil {
		t.Error("no settings if variables are missing")
	}
	if list, s := Settings(nil); len(list) > 0 || s == nil {
		t.Errorf("no variables: %v, %v", list, s)
	}
}

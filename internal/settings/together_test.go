package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStatsdSettings has settings and who receives statistics.
func TestStatsdSettings(t *testing.T) {
	for environ, want := range map[string]string{
		"":                                    "statsd",
		"USE_STATSD=false":                    "",
		"USE_PROMETHEUS=true":                 "Prometheus",
		"USE_PROMETHEUS=true USE_STATSD=true": "Prometheus statsd",
		"USE_DOG_STATSD=true":                 "DogStatsD",
		"USE_DOG_STATSD=true USE_PROMETHEUS=true":                                    "Prometheus DogStatsD",
		"USE_DOG_STATSD=true DISABLE_STATS=true USE_PROMETHEUS=true USE_STATSD=true": "",
	} {
		s, err := readWith(t, parsed(environ))
		if err != nil {
			t.Errorf("%s: %v", environ, err)
			continue
		}
		var got []string
		for name, on := range map[string]bool{
			"Prometheus": s.Telemetry.UsePrometheus, "statsd": s.Telemetry.UseStatsd, "DogStatsD": s.Telemetry.UseDogStatsd,
		} {
			if on {
				got = append(got, name)
			}
		}
		slices.SortFunc(got, strings.Compare)
		wanted := strings.Fields(want)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: got %q, want %q", environ, got, want)
		}
	}
	for environ, want := range map[string][]string{
		"USE_STATSD=true USE_DOG_STATSD=true": {"USE_STATSD and USE_DOG_STATSD: set one of them"},
		"STATS_FLUSH_INTERVAL=0s":             {"STATS_FLUSH_INTERVAL: want 1ms or more"},
		"EXTRA_TAGS=a:b,c":                    {"EXTRA_TAGS: want key:value pairs"},
		"STATSD_PROTOCOL=unix":                {"STATSD_PROTOCOL: want tcp or udp"},
		"USE_DOG_STATSD_MOGRIFIERS=a-b":       {"USE_DOG_STATSD_MOGRIFIERS: want names of letters"},
		"USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=A,B DOG_STATSD_MOGRIFIER_A_NAME=x DOG_STATSD_MOGRIFIER_A_PATTERN=( " +
			"DOG_STATSD_MOGRIFIER_A_TAGS=x": {"DOG_STATSD_MOGRIFIER_A_PATTERN: want a regular expression",
			"DOG_STATSD_MOGRIFIER_A_TAGS: want key:value", "DOG_STATSD_MOGRIFIER_B_NAME: want the name"},
		"PROMETHEUS_ADDR=9090 NEAR_LIMIT_RATIO=80 PROMETHEUS_PATH=metrics METRIC_VALUES_MAX=0": {
			"PROMETHEUS_ADDR: want an address and a port", "NEAR_LIMIT_RATIO: want a number above 0",
			"PROMETHEUS_PATH: want a path", "METRIC_VALUES_MAX: want 1 or more"},
		"STRICT_ENVIRONMENT=true DOG_STATSD_MOGRIFIER_A_NAME=x": {"DOG_STATSD_MOGRIFIER_A_NAME is not a setting"},
	} {
		_, err := readWith(t, parsed(environ))
		for _, text := range want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", environ, err, text)
			}
		}
	}
	env := parsed(("STRICT_ENVIRONMENT=true USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=a " +
		"DOG_STATSD_MOGRIFIER_A_NAME=x DOG_STATSD_MOGRIFIER_A_PATTERN=y DOG_STATSD_MOGRIFIER_A_TAGS=b:$1,a:c"))
	s, err := readWith(t, env)
	if err != nil {
		t.Fatalf("STRICT_ENVIRONMENT: %v", err)
	}
	if got := fmt.Sprint(s.Telemetry.Mogrifiers); got != "[{y x [{a c} {b $1}]}]" {
		t.Errorf("the rules of DogStatsD: %s", got)
	}
}

// TestXDSSettings reports the mistakes of settings, and settings without effect.
func TestXDSSettings(t *testing.T) {
	_, err := readWith(t, environment{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_METADATA": "team", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "a",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "x-a:1,grpc-status:0", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "0s",
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "half", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "-1", "CONFIG_GRPC_XDS_NODE_ID": "",
	})
	want := []string{
		"CONFIG_GRPC_XDS_NODE_ID is set to nothing: give it a value, or unset it (default default)",
		"CONFIG_GRPC_XDS_NODE_METADATA: want key=value pairs with commas, such as team=shop,zone=a, or a JSON object",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: want more than 0, such as 10s",
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR: want a number, such as 0.5",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: want 1 or more, or 0 for 4 MiB",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: pair 2 has no valid name: want name:value pairs with commas, such as " +
			"x-team:shop,x-zone:a",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), fmt.Sprint(err)); diff != "" {
		t.Errorf("mistakes (-want +got)\n%s", diff)
	}
	env := environment{"CONFIG_GRPC_XDS_NODE_ID": "a", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "a"}
	s, err := readWith(t, env)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ineffectiveXDS(env); len(got) != 2 || !strings.HasSuffix(got[0].Text,
		"without CONFIG_TYPE=GRPC_XDS_SOTW") {
		t.Errorf("warnings %q", got)
	}
	s.Rules.ConfigType = ConfigXDS
	const withoutTLS = "without CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
	if got := s.ineffectiveXDS(env); len(got) != 1 || !strings.HasSuffix(got[0].Text, withoutTLS) {
		t.Errorf("warnings %q", got)
	}
}

// TestIsTarget: gRPC would take port 443 for an address without one, and find other mistakes only when it connects.
func TestIsTarget(t *testing.T) {
	for text, want := range map[string]bool{
		"localhost:18000": true, "envoy-gateway.envoy-gateway-system.svc:18001": true, "[::1]:18000": true,
		"dns:///xds:18000": true, "unix:/run/xds.sock": true,
		"localhost": false, "localhost:": false, ":18000": false, "localhost:99999": false, "localhost:0": false,
		"http://localhost:18000": false, "a:b:1": false, "::1": false,
	} {
		s, err := readWith(t, environment{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": text})
		if (err == nil) != want || !want && strings.Contains(fmt.Sprint(err), "http:") {
			t.Errorf("%s: %v %v", text, s, err)
		}
	}
}

// TestContradictions has settings that contradict each other. Each is one warning, and a mistake with
// STRICT_ENVIRONMENT. Buckets in memory beside a Redis are always a mistake.
func TestContradictions(t *testing.T) {
	for environ, want := range map[string]string{
		"REDIS_AUTH=password":                    "REDIS_AUTH has no effect without REDIS_URL",
		"REDIS_PERSECOND_URL=redis:1":            "REDIS_PERSECOND_URL has no effect without REDIS_PERSECOND=true",
		"GRPC_UDS=/run/grpc.sock GRPC_PORT=9081": "GRPC_PORT has no effect with GRPC_UDS: gRPC is served on the socket only",
		"GRPC_UDS=/run/grpc.sock GRPC_PORT=8081": "",

		"LOG_CLIENT_VALUES=true LOG_LEVEL=ERROR":      "", // the debug port shows values
		"REDIS_AUTH=password REDIS_URL=redis://redis": "",
	} {
		s, err := readWith(t, parsed(environ))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(texts(s.Warnings), "\n"); got != want {
			t.Errorf("%s: the warnings are %q, want %q", environ, got, want)
		}
		_, err = readWith(t, parsed(environ+" STRICT_ENVIRONMENT=true"))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s, STRICT_ENVIRONMENT: %v, want %q", environ, err, want)
		}
	}
	_, err := readWith(t, parsed("BACKEND_TYPE=memory REDIS_URL=redis://redis"))
	const want = "BACKEND_TYPE=memory with REDIS_URL: each replica would count alone; unset one of them"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStrictEnvironment has environments, and the mistakes that STRICT_ENVIRONMENT reports.
func TestStrictEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		environ string
		want    []string
	}{
		"settings": {"PORT=80 REDIS_URL=localhost API_KEY_SECRET_FILE=/run/secret GRPC_UDS= " +
			"STRICT_ENVIRONMENT=true", nil},
		"a misspelt setting": {"REDIS_TIMEOT=8ms", []string{"REDIS_TIMEOT is not a setting: did you mean REDIS_TIMEOUT?"}},
		"set to nothing":     {"REDIS_TIMEOT=", []string{"REDIS_TIMEOT is not a setting: did you mean REDIS_TIMEOUT?"}},
		"in lower case":      {"redis_url=localhost", []string{"redis_url is not a setting: did you mean REDIS_URL?"}},
		"a short one":        {"PROT=80", []string{"PROT is not a setting: did you mean PORT?"}},
		"a secret":           {"REDIS_AHUT=swordfish", []string{"REDIS_AHUT is not a setting: did you mean REDIS_AUTH?"}},
		"no secret, no file": {"REDIS_TLS_CACERT_FILE=/ca",
			[]string{"REDIS_TLS_CACERT_FILE is not a setting: did you mean REDIS_TLS_CACERT?"}},
		"nothing like it": {"WEATHER=fine", []string{"WEATHER is not a setting"}},
		"tracing":         {"OTEL_SERVICE_NAME=extauthz OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", nil},
		"near-misses first": {"APE=1 ZEBRA=1 LOG_LEVL=INFO DEBUG_HSOT=::", []string{
			"DEBUG_HSOT is not a setting: did you mean DEBUG_HOST?", "LOG_LEVL is not a setting: did you mean LOG_LEVEL?",
			"APE is not a setting", "ZEBRA is not a setting",
		}},

		"of envoyproxy/ratelimit": {"USE_STATSD=false NEAR_LIMIT_RATIO=0.9 GRPC_SERVER_USE_TLS=false", nil},
		"a container": {"PATH=/bin HOME=/ HOSTNAME=a1b2 container=podman SSL_CERT_FILE=/ca.pem GOMEMLIMIT=1GiB " +
			"https_proxy=p LC_ALL=C", nil},
		"a shell": {"PWD=/ OLDPWD=/a SHLVL=1 SHELL=/bin/sh TERM=xterm LANG=C USER=u LOGNAME=u TZ=UTC " +
			"TMPDIR=/tmp _=/bin/x", nil},
		"the downward API": {"POD_IP=10.0.0.7 GRPC_HOST=10.0.0.7", nil},
		"the API server":   {"KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_PORT=tcp://10.0.0.1:443", nil},
		"service links": {"REDIS_SERVICE_HOST=10.0.0.9 REDIS_SERVICE_PORT=6379 REDIS_SERVICE_PORT_MAIN=6379 " +
			"REDIS_PORT=tcp://10.0.0.9:6379 " +
			"REDIS_PORT_6379_TCP=tcp://10.0.0.9:6379 REDIS_PORT_6379_TCP_PROTO=tcp REDIS_PORT_6379_TCP_PORT=6379 " +
			"REDIS_PORT_6379_TCP_ADDR=10.0.0.9", nil},
		"a link that looks like another": {"A_SERVICE_PORT_B_SERVICE_HOST=10.0.0.9 A_SERVICE_PORT_B_SERVICE_PORT=80 " +
			"A_SERVICE_PORT_B_PORT=tcp://10.0.0.9:80", nil},
		"no service link":   {"GRCP_PORT=8081", []string{"GRCP_PORT is not a setting: did you mean GRPC_PORT?"}},
		"no service either": {"DEBUGG_SERVICE_HOST=::", []string{"DEBUGG_SERVICE_HOST is not a setting"}},
		"beside a service link": {"REDIS_SERVICE_HOST=10.0.0.9 REDIS_SERVICE_PORT=6379 REDIS_POOLSIZE=2",
			[]string{"REDIS_POOLSIZE is not a setting: did you mean REDIS_POOL_SIZE?"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := parsed(c.environ).unknownVariables(); err != nil {
				got = strings.Split(err.Error(), "\n")
				last := len(got) - 1
				if !strings.Contains(got[last], "PATH, HOME") || !strings.Contains(got[last], "STRICT_ENVIRONMENT=false") {
					t.Errorf("want what is allowed, and how to switch it off, at the end of\n%v", err)
				}
				got = got[:last]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.environ, diff)
			}
		})
	}
}

// TestUnknownVariablesAreMistakes checks that an unknown variable is at most a warning by default, and a mistake if
// strict.
func TestUnknownVariablesAreMistakes(t *testing.T) {
	env := environment{"REDIS_TIMEOT": "5s"}
	if _, err := readWith(t, env); err != nil || len(env.ineffective()) != 1 {
		t.Errorf("by default: %v, warnings %q; want one warning", err, env.ineffective())
	}
	env["STRICT_ENVIRONMENT"] = "true"
	env["LOG_FORMAT"] = "xml"
	_, err := readWith(t, env)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`LOG_FORMAT: want text or json`,
		"REDIS_TIMEOT is not a setting: did you mean REDIS_TIMEOUT?"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestLookalikes has environments, and the one warning about variables that look like settings.
func TestLookalikes(t *testing.T) {
	for name, c := range map[string]struct{ environ, want string }{
		"settings": {"REDIS_URL=localhost:6379 REDIS_AUTH_FILE=/run/auth LIMIT_REQUEST_HEADERS_ENABLED=true", ""},
		"without effect": {"REDIS_PIPELINE_LIMIT=2",
			"REDIS_PIPELINE_LIMIT has no effect: requests share round trips without waiting for each other"},
		"families": {"USE_MAGIC=1 REDIS_TIMEOUTS=5s LIMIT_LIMIT_HEADERS=a CONFIG_GRPC_XDS_SERVERURL=a:1 STATSD_HOSTS=b " +
			"PROMETHEUS_ADDRESS=:9 WEATHER=fine",
			"not settings of this service: CONFIG_GRPC_XDS_SERVERURL (did you mean CONFIG_GRPC_XDS_SERVER_URL?), " +
				"LIMIT_LIMIT_HEADERS (did you mean LIMIT_LIMIT_HEADER?), PROMETHEUS_ADDRESS (did you mean PROMETHEUS_ADDR?), " +
				"REDIS_TIMEOUTS (did you mean REDIS_TIMEOUT?), STATSD_HOSTS (did you mean STATSD_HOST?), USE_MAGIC"},
		"nearly a setting": {"DRIAN_DELAY=1", "not settings of this service: DRIAN_DELAY (did you mean DRAIN_DELAY?)"},
		"set to nothing":   {"REDIS_TIMEOT= USE_MAGIC=", ""},
		"a file for no secret": {"REDIS_TLS_CACERT_FILE=/ca",
			"not settings of this service: REDIS_TLS_CACERT_FILE (did you mean REDIS_TLS_CACERT?)"},
		"service links": {"REDIS_SERVICE_HOST=10.0.0.9 REDIS_SERVICE_PORT=6379 REDIS_PORT=tcp://10.0.0.9:6379 " +
			"REDIS_PORT_6379_TCP_ADDR=10.0.0.9 CONFIG_SERVICE_HOST=10.0.0.8 CONFIG_SERVICE_PORT=80", ""},
		"no service link": {"REDIS_PORT=6379", "not settings of this service: REDIS_PORT (did you mean REDIS_URL?)"},
		"a platform":      {"GRPC_GO_LOG_SEVERITY_LEVEL=info GRPC_TRACE=all KUBERNETES_PORT=tcp://10.0.0.1 PATH=/bin", ""},
		"Envoy Gateway":   {"GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt", ""},
		"mogrifiers": {"USE_DOG_STATSD_MOGRIFIERS=A DOG_STATSD_MOGRIFIER_A_NAME=x DOG_STATSD_MOGRIFIER_B_NAME=x",
			"not settings of this service: DOG_STATSD_MOGRIFIER_B_NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(texts(parsed(c.environ).ineffective()), "; "); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.environ, got, c.want)
			}
		})
	}
}

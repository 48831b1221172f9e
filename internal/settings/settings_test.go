package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/reply"
)

func TestSettingsMistakesAreReportedAtOnce(t *testing.T) {
	env := environment{
		"PORT":                        "808080",
		"REDIS_TIMEOUT":               "50",
		"DEFAULT_ALGORITHM":           "tokenbucket",
		"LOG_LEVEL":                   "loud",
		"SHADOW_MODE":                 "yes",
		"STORE_ERROR_POLICY":          "panic",
		"RESPONSE_HEADERS":            "x,spring",
		"LIMIT_LIMIT_HEADER":          "a\r\nb",
		"BACKEND_TYPE":                "memcache",
		"REDIS_TYPE":                  "CLOSTER",
		"GRPC_SERVER_USE_TLS":         "true",
		"GRPC_CLIENT_TLS_SAN":         "envoy",
		"GRPC_MAX_CONCURRENT_STREAMS": "0",
		"MEMORY_MAX_BUCKETS":          "0",
		"MEMORY_MAX_HOLDS":            "-1",
		"REDIS_TLS_CLIENT_CERT":       "/cert",
		"CONFIG_TYPE":                 "XDS",
		"GRPC_PORT":                   "",
		"REDIS_AUTH":                  "swordfish",
		"REDIS_AUTH_FILE":             "/nowhere",
		"REDIS_PERSECOND":             "false",
		"COMPATIBILITY":               "most",
		"LOG_FORMAT":                  "jason",
		"DRAIN_DELAY":                 "-1s",
		"RESPONSE_BODY":               "html",
		"MERGE_DOMAIN_CONFIG":         "1",
		"REDIS_SOCKET_TYPE":           "pigeon",
		"GRPC_MAX_CONNECTION_AGE":     "1 day",
	}
	_, err := readWith(t, env)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`PORT: want a port, 0 to 65535`,
		`REDIS_TIMEOUT: want a duration with its unit, such as 50ms, 5s or 24h`,
		`DEFAULT_ALGORITHM: want one of sliding_window, sliding_window_log, sliding_window_counter, token_bucket, ` +
			`leaky_bucket, fixed_window`,
		`LOG_LEVEL: want DEBUG, INFO, WARN or ERROR`,
		`SHADOW_MODE: want true or false`,
		`STORE_ERROR_POLICY: want one of local, allow, deny`,
		`RESPONSE_HEADERS: want draft, triple, x, spring, several with commas, or off; x and spring both send ` +
			`X-RateLimit-Remaining, so take one of them`,
		`LIMIT_LIMIT_HEADER: want the name of a header, such as X-Forwarded-For: letters, digits and hyphens`,
		`BACKEND_TYPE: memcached cannot decide exactly and is not supported: want memory or redis`,
		`REDIS_TYPE: want SINGLE or SENTINEL or CLUSTER (did you mean CLUSTER?)`,
		`GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY`,
		`GRPC_CLIENT_TLS_SAN: set GRPC_CLIENT_TLS_CACERT, too; without it, clients need no certificate`,
		`GRPC_MAX_CONCURRENT_STREAMS: want 1 to 2147483647, such as 1024`,
		`MEMORY_MAX_BUCKETS: want 1 or more`,
		`MEMORY_MAX_HOLDS: want 1 or more`,
		`REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: set both or none`,
		`CONFIG_TYPE: want FILE or GRPC_XDS_SOTW`,
		`GRPC_PORT is set to nothing: want a port, 0 to 65535 (default 8081)`,
		`REDIS_AUTH and REDIS_AUTH_FILE are both set: take one of them`,
		`COMPATIBILITY: want default or strict`,
		`DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more`,
		`RESPONSE_BODY: want problem or off`,
		`REDIS_SOCKET_TYPE: want tcp or tls or unix`,
		`LOG_FORMAT: want text or json (did you mean json?)`,
		`DEFAULT_ALGORITHM: want one of sliding_window, sliding_window_log, sliding_window_counter, token_bucket, ` +
			`leaky_bucket, fixed_window (did you mean token_bucket?)`,
		`GRPC_MAX_CONNECTION_AGE: want a duration`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	for _, not := range []string{"swordfish", "MERGE_DOMAIN_CONFIG", "REDIS_PERSECOND", "REDIS_TIMEOUT: want more"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%q in\n%v", not, err)
		}
	}
}

// TestDurationsOutOfRange sets durations that have a unit but no meaning. Some would end the process at the first
// connection.
func TestDurationsOutOfRange(t *testing.T) {
	const age, grace = "GRPC_MAX_CONNECTION_AGE", "GRPC_MAX_CONNECTION_AGE_GRACE"
	for _, c := range []struct{ name, value, want string }{
		{age, "-1s", age + ": want 1ms to 876000h, or 0 for no maximum"},
		{age, "5ns", age + ": want 1ms to 876000h, or 0 for no maximum"},
		{age, "2562047h", age + ": want 1ms to 876000h, or 0 for no maximum"},
		{age, "0", ""},
		{age, "1ms", ""},
		{grace, "-5s", grace + ": want more than 0, such as 1h, or 0 for no maximum"},
		{grace, "0s", ""},
	} {
		_, err := readWith(t, environment{c.name: c.value})
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s=%s: %v, want %q", c.name, c.value, err, c.want)
		}
	}
}

func TestSettingsDefaults(t *testing.T) {
	s, err := readWith(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Listeners.Host != "0.0.0.0" || s.Listeners.Port != 8080 || s.Listeners.GRPCPort != 8081 ||
		s.Listeners.DebugHost != "127.0.0.1" || s.Listeners.DebugPort != 6070 {
		t.Errorf("listeners of envoyproxy/ratelimit: %+v", s)
	}
	if s.Store() != "memory" || s.Limits.DefaultAlgorithm != bucket.SlidingWindow || s.Redis.Main.Timeout != 0 {
		t.Errorf("limits: %+v", s)
	}
	if diff := cmp.Diff([]reply.Set{reply.Draft}, s.Answers.ReplyHeaders().Sets); diff != "" {
		t.Error(diff)
	}
}

func TestSettingsOfRatelimit(t *testing.T) {
	env := environment{
		"COMPATIBILITY": "strict", "LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LOG_LEVEL": "warning", "USE_STATSD": "false",
		"BACKEND_TYPE": "redis", "REDIS_URL": "localhost:6379", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_ROOT": "/data",
		"LIMIT_LIMIT_HEADER": "X-Limit", "EXPIRATION_JITTER_MAX_SECONDS": "300", "REDIS_TIMEOT": "5s",
	}
	s, err := readWith(t, env)
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits.DefaultAlgorithm != bucket.FixedWindow || s.Answers.Body != "off" ||
		s.Rules.Directory() != "/data/ratelimit/config" {
		t.Errorf("%+v", s)
	}
	headers := reply.Headers{
		Sets: []reply.Set{reply.Triple}, LimitName: "X-Limit", RemainingName: "RateLimit-Remaining",
		ResetName: "RateLimit-Reset",
	}
	if diff := cmp.Diff(headers, s.Answers.ReplyHeaders()); diff != "" { // names keep their case
		t.Error(diff)
	}
	want := []string{
		"EXPIRATION_JITTER_MAX_SECONDS has no effect: each key expires as soon as it no longer affects decisions",
		"not settings of this service: REDIS_TIMEOT (did you mean REDIS_TIMEOUT?)",
	}
	if diff := cmp.Diff(want, texts(env.ineffective())); diff != "" {
		t.Error(diff)
	}
}

// TestRedisSettingsWithoutEffect: settings of TLS for a Redis without TLS cause warnings, also with STRICT_ENVIRONMENT.
// So do those of sentinels and of a second Redis that are not used, and that of the local cache without strict mode.
func TestRedisSettingsWithoutEffect(t *testing.T) {
	remedy := " has no effect without TLS: write rediss:// in REDIS_URL, or set REDIS_TLS=true"
	for environ, want := range map[string][]string{
		"REDIS_URL=redis://redis REDIS_TLS_CACERT=/ca": {"REDIS_TLS_CACERT" + remedy},
		"REDIS_URL=redis:6379 REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k STRICT_ENVIRONMENT=true": {
			"REDIS_TLS_CLIENT_CERT" + remedy},
		"REDIS_URL=redis:6379 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true": {
			"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" + remedy},
		"REDIS_URL=redis:6379 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=false": nil,
		"REDIS_URL=rediss://redis REDIS_TLS_CACERT=/ca":                   nil,
		"REDIS_URL=redis://redis REDIS_TLS_CACERT=/ca REDIS_TLS=true":     nil,
		"REDIS_URL=redis:6379 REDIS_TLS_CACERT=/ca REDIS_SOCKET_TYPE=tls": nil,
		"REDIS_URL=redis:6379 REDIS_TLS_CACERT=/ca REDIS_PERSECOND=true REDIS_PERSECOND_URL=redis:1 " +
			"REDIS_PERSECOND_TLS=true": nil,
		"REDIS_URL=redis:6379 REDIS_SENTINEL_AUTH=password": {
			"REDIS_SENTINEL_AUTH has no effect without REDIS_TYPE=SENTINEL"},
		"LOCAL_CACHE_SIZE_IN_BYTES=0": nil,
		"LOCAL_CACHE_SIZE_IN_BYTES=1000000 STRICT_ENVIRONMENT=true": {
			"LOCAL_CACHE_SIZE_IN_BYTES has no effect without COMPATIBILITY=strict: DENIAL_CACHE needs no size; " +
				"MEMORY_MAX_BUCKETS bounds its memory"},
		"LOCAL_CACHE_SIZE_IN_BYTES=1000000 COMPATIBILITY=strict": nil,
	} {
		s, err := readWith(t, parsed(environ))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, texts(s.ineffective())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", environ, diff)
		}
	}
}

func TestSecretFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("user:pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readWith(t, environment{"REDIS_AUTH_FILE": file})
	if err != nil || s.Redis.Main.Auth != "user:pass word" {
		t.Errorf("%q, %v", s.Redis.Main.Auth, err)
	}
	if _, err := readWith(t, environment{"REDIS_AUTH_FILE": file + "2"}); err == nil ||
		!strings.Contains(err.Error(), file+"2") {
		t.Errorf("a missing file: %v", err)
	}
}

func texts(findings []Finding) (list []string) {
	for _, f := range findings {
		list = append(list, f.String())
	}
	return list
}

// TestValuesThatLookLikeSecrets checks that names and paths are accepted even if they look like secrets.
func TestValuesThatLookLikeSecrets(t *testing.T) {
	for _, vars := range []environment{
		{"AUTHZ_DOMAIN": "ProductionShopEuWest1Front"},
		{"CACHE_KEY_PREFIX": "tenantA-production-eu-west-1_"},
		{"CACHE_KEY_PREFIX": "rl:app@prod:"},
		{"RUNTIME_SUBDIRECTORY": "Team42/production-ratelimits"},
		{"API_KEYS_FILE": "config/prodEuWest1/keysForTeamA", "API_KEY_SECRET": "a-server-secret-of-a-test"},
		{"REDIS_AUTH": "extauthz", "REDIS_URL": "127.0.0.1:1", "RUNTIME_ROOT": "/etc/extauthz"},
		{"API_KEY_SECRET": "the-secret-of-team-a", "RUNTIME_ROOT": "/srv/the-secret-of-team-a"},
		{"MEMORY_SNAPSHOT_PATH": "/var/lib/eyJhb/ea_12345678_snapshots"},
	} {
		t.Run(fmt.Sprint(vars), func(t *testing.T) {
			if _, err := readWith(t, vars); err != nil {
				t.Errorf("it is refused: %v", err)
			}
		})
	}
}

// TestNumbersAndWords has values that envconfig alone would accept or refuse.
func TestNumbersAndWords(t *testing.T) {
	for _, number := range []string{"NaN", "inf", "-Inf", "1e999"} {
		_, err := readWith(t, environment{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": number})
		if want := "XDS_CLIENT_BACKOFF_RANDOM_FACTOR: want a number, such as 0.5"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", number, err, want)
		}
	}
	if _, err := readWith(t, environment{"DEFAULT_ALGORITHM": "concurrency"}); err == nil ||
		err.Error() != "DEFAULT_ALGORITHM cannot be concurrency: each limit of that needs a `hold` of its own" {
		t.Errorf("concurrency by default: %v", err)
	}
	s, err := readWith(t, environment{
		"DEFAULT_ALGORITHM": "Token_Bucket", "STORE_ERROR_POLICY": "DENY", "REDIS_PERSECOND_TYPE": "cluster",
		"LOG_FORMAT": "JSON",
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits.DefaultAlgorithm != bucket.TokenBucket || s.Limits.StoreErrorPolicy != ratelimit.Deny ||
		s.Redis.PerSecond.Type != "CLUSTER" || s.Telemetry.LogFormat != "json" {
		t.Errorf("words in any case: %+v", s)
	}
	if _, err := readWith(t, environment{"GRPC_PLAINTEXT": ""}); err == nil ||
		err.Error() != "GRPC_PLAINTEXT: want allow" {
		t.Errorf("a word that is set to nothing: %v", err)
	}
}

// TestNamesOfHeaders renames headers. No two headers of one answer have the same name, and no header frames a message.
func TestNamesOfHeaders(t *testing.T) {
	const pairs, same = "RESPONSE_HEADER_NAMES: want NAME:OTHER pairs",
		"RESPONSE_HEADERS: the headers of an answer need different names that frame no message"
	for _, c := range []struct {
		environ, names, want string
	}{
		{"RESPONSE_HEADERS=x RESPONSE_HEADER_NAMES=X-RateLimit-Limit:X-Quota,x-ratelimit-reset:x-again",
			"x-quota x-ratelimit-remaining x-again retry-after", ""},
		{"RESPONSE_HEADERS=spring RESPONSE_HEADER_NAMES=X-RateLimit-Replenish-Rate:X-Rate",
			"x-ratelimit-remaining x-rate x-ratelimit-burst-capacity x-ratelimit-requested-tokens retry-after", ""},
		{"RESPONSE_HEADERS=off RESPONSE_HEADER_NAMES=RateLimit:X-Quota", "", ""},
		{"RESPONSE_HEADERS=triple LIMIT_LIMIT_HEADER=X-Limit", "x-limit ratelimit-remaining ratelimit-reset retry-after", ""},
		{"RESPONSE_HEADERS=draft,x RESPONSE_HEADER_NAMES=RateLimit:X-RateLimit-Limit", "", same},
		{"RESPONSE_HEADERS=triple,x LIMIT_RESET_HEADER=X-RateLimit-Reset", "", same},
		{"RESPONSE_HEADERS=draft LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=Retry-After", "", same},
		{"RESPONSE_HEADERS=triple LIMIT_RESET_HEADER=Content-Length", "", same},
		{"RESPONSE_HEADER_NAMES=RateLimit:Transfer-Encoding", "", same},
		{"RESPONSE_HEADER_NAMES=RateLimit::status", "", same},
		{"RESPONSE_HEADER_NAMES=RateLimit:", "", same},
		{"RESPONSE_HEADER_NAMES=RateLimit:X-A,RateLimit:X-B", "", pairs},
		{"RESPONSE_HEADER_NAMES=RateLimit-Limit:X-A", "", pairs},
		{"RESPONSE_STATUS=200", "", "RESPONSE_STATUS: want a status from 400 to 599"},
		{"RESPONSE_STATUS=600", "", "RESPONSE_STATUS: want a status from 400 to 599"},
	} {
		env := environment{}
		for pair := range strings.FieldsSeq(c.environ) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		s, err := readWith(t, env)
		switch {
		case err != nil && (c.want == "" || !strings.HasPrefix(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.environ, err, c.want)
		case err == nil && c.want != "":
			t.Errorf("%s: got no error, want %q", c.environ, c.want)
		case err == nil && strings.Join(s.Answers.ReplyHeaders().Sent(), " ") != c.names:
			t.Errorf("%s: got %q, want %q", c.environ, s.Answers.ReplyHeaders().Sent(), c.names)
		}
	}
}

// TestNamesForTheUpstream: the names of the three headers differ, and none frames the message.
func TestNamesForTheUpstream(t *testing.T) {
	for environ, want := range map[string]string{
		"": "", "LIMIT_REQUEST_LIMIT_HEADER=host": "",
		"LIMIT_REQUEST_HEADERS_ENABLED=true": "RateLimit-Limit RateLimit-Remaining RateLimit-Reset",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_LIMIT_HEADER=X-A LIMIT_REQUEST_REMAINING_HEADER=X-B " +
			"LIMIT_REQUEST_RESET_HEADER=X-C LIMIT_LIMIT_HEADER=X-D": "X-A X-B X-C",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_LIMIT_HEADER=ratelimit-reset":   "error",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_RESET_HEADER=Content-Length":    "error",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_REMAINING_HEADER=:path":         "error",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_REMAINING_HEADER=x-left:1":      "error",
		"LIMIT_REQUEST_HEADERS_ENABLED=true LIMIT_REQUEST_REMAINING_HEADER=Authorization": "error",
	} {
		s, err := readWith(t, parsed(environ))
		if err != nil {
			if want != "error" || !strings.Contains(err.Error(), "LIMIT_REQUEST_") {
				t.Errorf("%s: %v", environ, err)
			}
			continue
		}
		h := s.Answers.RequestHeaders()
		if got := strings.TrimSpace(h.LimitName + " " + h.RemainingName + " " + h.ResetName); got != want {
			t.Errorf("%s: got %q, want %q", environ, got, want)
		}
	}
}

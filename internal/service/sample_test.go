package service

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestSampleIsServedOnlyWhenNothingIsConfigured has environments without a rule directory. Any sign that an operator
// has configured the service stops the start, because the sample accepts a key that everyone knows.
func TestSampleIsServedOnlyWhenNothingIsConfigured(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret of sixteen bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	const directory = "/srv/runtime_data/current/config"
	for _, c := range []struct {
		environ string // variables, separated by spaces
		set     string // the variables that the error names; "": the sample is served
		dir     string // the missing directory, when it is not the default
	}{
		{environ: ""},
		{environ: "PORT=0 GRPC_PORT=0 DEBUG_PORT=0 LOG_LEVEL=ERROR LOG_FORMAT=json DRAIN_DELAY=0s DRAIN_TIMEOUT=1s"},
		{environ: "HOST=127.0.0.1 GRPC_HOST=localhost DEBUG_HOST=::1"},
		{environ: "AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source AUTHZ_HTTP_TIMEOUT=2s"}, // envoy/http-ext_authz.yaml
		{environ: "GRPC_UDS= REDIS_URL= API_KEYS_FILE= KUBERNETES_SERVICE_HOST="},

		{environ: "RUNTIME_ROOT=/nowhere", set: "RUNTIME_ROOT", dir: "/nowhere/config"},
		{environ: "RUNTIME_SUBDIRECTORY=shop", set: "RUNTIME_SUBDIRECTORY", dir: "/srv/runtime_data/current/shop/config"},
		{environ: "RUNTIME_APPDIRECTORY=rules", set: "RUNTIME_APPDIRECTORY", dir: "/srv/runtime_data/current/rules"},
		{environ: "RUNTIME_IGNOREDOTFILES=true", set: "RUNTIME_IGNOREDOTFILES"},
		{environ: "RUNTIME_WATCH_ROOT=false", set: "RUNTIME_WATCH_ROOT"},
		{environ: "GRPC_UDS=/run/extauthz/grpc.sock", set: "GRPC_UDS"},
		{environ: "API_KEYS_FILE=keys.jsonl", set: "API_KEYS_FILE"},
		{environ: "API_KEY_SECRET=" + strings.Repeat("x", 16), set: "API_KEY_SECRET"},
		{environ: "API_KEY_SECRET_FILE=" + secret, set: "API_KEY_SECRET_FILE"},
		{environ: "API_KEY_SECRET_PREVIOUS_FILE=" + secret, set: "API_KEY_SECRET_PREVIOUS_FILE"},
		{environ: "REDIS_URL=localhost:6379", set: "REDIS_URL"},
		{environ: "REDIS_URL_FILE=" + secret, set: "REDIS_URL_FILE"},
		{environ: "REDIS_AUTH_FILE=" + secret, set: "REDIS_AUTH_FILE"},
		{environ: "STRICT_ENVIRONMENT=true", set: "STRICT_ENVIRONMENT"},
		{environ: "COMPATIBILITY=strict", set: "COMPATIBILITY"},
		{environ: "AUTHZ_DOMAIN=shop", set: "AUTHZ_DOMAIN"},
		{environ: "GRPC_HOST=0.0.0.0", set: "GRPC_HOST"},
		{environ: "HOST=::", set: "HOST"},
		{environ: "DEBUG_HOST=10.0.0.7", set: "DEBUG_HOST"},
		{environ: "USE_STATSD=false", set: "USE_STATSD"},          // a deployment of envoyproxy/ratelimit
		{environ: "RUNTIME_ROT=/etc/rules", set: "RUNTIME_ROT"},   // meant RUNTIME_ROOT
		{environ: "API_KEY_FILE=keys.jsonl", set: "API_KEY_FILE"}, // meant API_KEYS_FILE
		{environ: "GRPC_UDSS=/run/grpc.sock", set: "GRPC_UDSS"},   // meant GRPC_UDS
		{environ: "KUBERNETES_SERVICE_HOST=10.96.0.1", set: "KUBERNETES_SERVICE_HOST"},
		{environ: "NOMAD_ALLOC_ID=5b1c", set: "NOMAD_ALLOC_ID"},
		{environ: "ECS_CONTAINER_METADATA_URI_V4=http://169.254.170.2/v4/x", set: "ECS_CONTAINER_METADATA_URI_V4"},
		{environ: "REDIS_URL=localhost LOG_LEVEL=INFO GRPC_UDS=/run/grpc.sock", set: "GRPC_UDS, REDIS_URL"},
	} {
		t.Run(c.environ, func(t *testing.T) {
			environ := map[string]string{}
			for _, pair := range strings.Fields(c.environ) {
				name, value, _ := strings.Cut(pair, "=")
				environ[name] = value
			}
			testenv.Setenv(t, environ)
			s, err := settings.Read()
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := loadRules(t.Context(), s, newCertificates(nil), slog.New(slog.DiscardHandler))
			if c.set == "" {
				if err != nil || !loaded.sample {
					t.Errorf("got %+v, %v; want the sample", loaded, err)
				}
				return
			}
			if c.dir == "" {
				c.dir = directory
			}
			if err == nil {
				t.Fatalf("the service starts, with the sample: %v", loaded.sample)
			}
			for _, want := range []string{"the rule directory " + c.dir + " does not exist", "set here: " + c.set + ")"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
		})
	}
}

// TestSampleIsNotServedFromHalfAMount has a default RUNTIME_ROOT that exists, so something is mounted there, but no
// rules.
func TestSampleIsNotServedFromHalfAMount(t *testing.T) {
	s := defaults
	s.Rules.Root = t.TempDir()
	_, err := loadRules(t.Context(), &s, newCertificates(nil), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), s.Rules.Root+" exists") {
		t.Errorf("got %v; want an error with the fact that %s exists", err, s.Rules.Root)
	}
}

// TestBannerCausesNoWarning types the commands of the banner: the service answers them, and logs no warning. With
// rules from a directory, a check over HTTP without an address causes one.
func TestBannerCausesNoWarning(t *testing.T) {
	t.Parallel()
	const warning = "Envoy asks over HTTP without the address of the client"
	_, _, _, out := start(t, configured())
	commands := regexp.MustCompile(`(?m)^  (curl .*)$`).FindAllStringSubmatch(out.String(), -1)
	if len(commands) != 2 {
		t.Fatalf("the banner has %d commands, want 2:\n%s", len(commands), out)
	}
	for _, c := range commands {
		printed, err := exec.CommandContext(t.Context(), "sh", "-c", c[1]).Output()
		if err != nil || !strings.HasPrefix(string(printed), "HTTP/1.1 200 OK") {
			t.Errorf("$ %s: %v\n%s", c[1], err, printed)
		}
	}
	_, log, _ := strings.Cut(out.String(), "msg=serving") // before it, grpc-go causes a warning
	if log == "" || strings.Contains(log, "level=WARN") {
		t.Errorf("the commands of the banner cause a warning:\n%s", out)
	}

	root := testenv.RulesRootWith(t, "domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: day, "+
		"requests_per_unit: 9}}]\nauthz: {anonymous: allow, limits: [{actions: [{remote_address: {}}]}]}\n")
	_, address, _, out := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	if code, body := get(t, "http://"+address+"/check/"); code != http.StatusOK {
		t.Errorf("/check/: %d %s", code, body)
	}
	testenv.Eventually(t, func() error {
		if !strings.Contains(out.String(), warning) {
			return errors.New(out.String())
		}
		return nil
	}, "the warning")
}

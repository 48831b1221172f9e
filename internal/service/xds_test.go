package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/internal/testenv/xdsserver"
)

// perKey returns a configuration of an xDS server: a limit of one request a day for each value of a key.
func perKey(domain, key string) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_DAY, RequestsPerUnit: 1},
	}}}
}

// TestXDS starts without rules, and limits requests as soon as an xDS server has sent them. Rules with mistakes are
// refused, shown and counted. The health follows HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED.
func TestXDS(t *testing.T) {
	t.Parallel()
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	text := "domains: [{domain: shop, rules: [{rule: user, rate_limit: {algorithm: leaky_bucket}}], " +
		"authz: {anonymous: allow}}]\n"
	if err := os.WriteFile(overlay, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := xdsserver.Start(t)
	_, httpAddr, debugAddr, out := start(t, Environment{
		"CONFIG_TYPE": "grpc_xds_sotw", "CONFIG_GRPC_XDS_SERVER_URL": server.Addr,
		"CONFIG_GRPC_XDS_NODE_ID":                   "envoy-ratelimit",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "x-team: shop,x-zone:a", "CONFIG_GRPC_XDS_NODE_METADATA": "team=shop",
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true",
		"CONFIG_GRPC_XDS_OVERLAY": overlay, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "1ms",
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "1ms",
	})
	none := `rules="none: the xDS server ` + server.Addr + ` has sent no rules yet"`
	if !strings.Contains(out.String(), none) {
		t.Errorf("no %s in\n%s", none, out)
	}
	subscription, headers := server.Subscription(1)
	if node := subscription.GetNode(); node.GetId() != "envoy-ratelimit" || node.GetMetadata().AsMap()["team"] != "shop" ||
		strings.Join(headers["x-team"], "") != "shop" || strings.Join(headers["x-zone"], "") != "a" {
		t.Errorf("node %v, headers %v", node, headers)
	}
	status := func(want int) {
		t.Helper()
		testenv.Eventually(t, func() error {
			res, err := http.Get("http://" + httpAddr + "/healthcheck")
			if err != nil {
				return err
			}
			_ = res.Body.Close()
			if res.StatusCode != want {
				return fmt.Errorf("it is %d", res.StatusCode)
			}
			return nil
		}, fmt.Sprintf("the health %d", want))
	}
	request := func(domain string) int {
		t.Helper()
		body := `{"domain":"` + domain + `","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`
		res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	decisions := func(domain string) string { return fmt.Sprint(request(domain), request(domain)) }
	dump := func() string {
		_, text := get(t, "http://"+debugAddr+"/rlconfig")
		return regexp.MustCompile("generation [0-9a-f]+").ReplaceAllString(text, "generation G")
	}
	metric := func(name string) string {
		_, metrics := get(t, "http://"+debugAddr+"/metrics")
		found := regexp.MustCompile(`(?m)^extauthz_` + name + ` (\S+)$`).FindStringSubmatch(metrics)
		if found == nil {
			t.Fatalf("no metric %s", name)
		}
		return found[1]
	}

	status(500)
	server.Answer(server.Send("1"))
	status(500) // as envoyproxy/ratelimit: a state without domains is no configuration
	server.Answer(server.Send("2", perKey("shop", "user"), perKey("bank", "user")))
	status(200)
	if got := decisions("shop") + " " + decisions("bank"); got != "200 429 200 429" {
		t.Errorf("decisions %s", got)
	}
	refusal := server.Answer(server.Send("3", perKey("shop", "user"), perKey("bank", "")))
	const mistake = "resource `bank`: descriptors[0]: descriptor has empty key"
	if got := refusal.GetErrorDetail().GetMessage(); got != mistake {
		t.Errorf("the refusal has %q", got)
	}
	from := "# generation G, from xDS server " + server.Addr + "\n"
	want := "bank.user: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, " +
		"algorithm=sliding_window_log, " +
		"on_store_error=local, at=resource `bank`: descriptors[0]\n" +
		"shop.user: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, algorithm=leaky_bucket, burst=1, " +
		"on_store_error=local, at=resource `shop`: descriptors[0]\n"
	got := dump()
	shown, refused, _ := strings.Cut(got, from)
	want += "shop authz: credentials=none anonymous=allow access=0 limits=0 " +
		"headers=x-auth-owner,x-auth-plan,x-auth-method,x-auth-key-id at=" + overlay + ":1\n"
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("/rlconfig (-want +got)\n%s", diff)
	}
	if !strings.Contains(refused, "error: descriptor has empty key") {
		t.Errorf("/rlconfig does not show the mistake\n%s", got)
	}
	for name, want := range map[string]string{
		"config_last_reload_successful": "0", "config_reload_failures_total": "1", "config_source_up": "1",
	} {
		if got := metric(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := decisions("shop"); got != "429 429" {
		t.Errorf("decisions after the refused rules: %s", got)
	}

	server.Stop()
	testenv.Eventually(t, func() error {
		if metric("config_source_up") != "0" {
			return errors.New("it is 1")
		}
		return nil
	}, "config_source_up to be 0")
	if got := decisions("bank"); got != "429 429" {
		t.Errorf("decisions while the server is down: %s", got)
	}
	nonce := server.Send("1", perKey("shop", "user"))
	server.Restart()
	server.Answer(nonce)
	if got := decisions("bank") + " " + decisions("shop"); got != "200 200 429 429" { // bank has no rules now
		t.Errorf("decisions after the restart of the server: %s", got)
	}
	server.Answer(server.Send("2"))
	status(500)
}

// TestXDSStartWaits checks that nothing listens before the xDS server has sent valid rules, and that a stop of the
// service ends the wait.
func TestXDSStartWaits(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	env := Environment{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": server.Addr, "PORT": "0",
		"GRPC_PORT": "0", "DEBUG_PORT": "0", "DRAIN_DELAY": "0s"}
	run := func() (out *testenv.Output, stop context.CancelFunc, done chan error) {
		s, err := ReadSettings(env)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		out, done = new(testenv.Output), make(chan error, 1)
		go func() { done <- Run(ctx, Config{Settings: s, Stderr: out}) }()
		return out, cancel, done
	}
	out, stop, done := run()
	server.Answer(server.Send("1", perKey("", "user")))
	mistake := regexp.MustCompile("config file cannot have empty domain")
	testenv.Eventually(t, matches(out, mistake), "the mistake in the log")
	if strings.Contains(out.String(), "msg=serving") {
		t.Errorf("it listens without rules\n%s", out)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("a stop while it waits: %v", err)
	}
	out, stop, done = run()
	server.Answer(server.Send("2", perKey("shop", "user")))
	testenv.Eventually(t, matches(out, serving), "the service to listen")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestMistakesBeforeTheWait: files and addresses that cannot be used stop the start before the xDS server is awaited.
func TestMistakesBeforeTheWait(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for want, vars := range map[string]Environment{
		"GRPC_SERVER_TLS_CERT": {"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": none, "GRPC_SERVER_TLS_KEY": none},
		"REDIS_URL":            {"REDIS_URL": "redis://127.0.0.1:6379/none"},
	} {
		vars["CONFIG_TYPE"], vars["CONFIG_GRPC_XDS_SERVER_URL"] = "GRPC_XDS_SOTW", xdsserver.Start(t).Addr
		s, err := ReadSettings(vars)
		if err != nil {
			t.Fatal(err)
		}
		out := new(testenv.Output)
		err = Run(t.Context(), Config{Settings: s, Stderr: out})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(out.String(), "waiting") {
			t.Errorf("%s: %v\n%s", want, err, out)
		}
	}
}

// TestIsTarget: gRPC would take port 443 for an address without one, and find other mistakes only when it connects.
func TestIsTarget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"localhost:18000": true, "envoy-gateway.envoy-gateway-system.svc:18001": true, "[::1]:18000": true,
		"dns:///xds:18000": true, "unix:/run/xds.sock": true,
		"localhost": false, "localhost:": false, ":18000": false, "localhost:99999": false, "localhost:0": false,
		"http://localhost:18000": false, "a:b:1": false, "::1": false,
	} {
		s, err := ReadSettings(Environment{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": text})
		if (err == nil) != want || !want && strings.Contains(fmt.Sprint(err), "http:") {
			t.Errorf("%s: %v %v", text, s, err)
		}
	}
}

// TestXDSSettings reports the mistakes of settings, and settings without effect.
func TestXDSSettings(t *testing.T) {
	t.Parallel()
	_, err := ReadSettings(Environment{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_METADATA": "team", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "a",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "x-a:1,grpc-status:0", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "0s",
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "half", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "-1", "CONFIG_GRPC_XDS_NODE_ID": "",
	})
	want := []string{
		"CONFIG_GRPC_XDS_NODE_ID is set to nothing: give it a value, or unset it (default default)",
		"CONFIG_GRPC_XDS_NODE_METADATA: want key=value pairs with commas, such as team=shop,zone=a, or a JSON object",
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR: want a number, such as 0.5",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: want more than 0, such as 10s",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: want 1 or more, or 0 for 4 MiB",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: pair 2 has no valid name: want name:value pairs with commas, such as " +
			"x-team:shop,x-zone:a",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), fmt.Sprint(err)); diff != "" {
		t.Errorf("mistakes (-want +got)\n%s", diff)
	}
	s, err := ReadSettings(Environment{"CONFIG_GRPC_XDS_NODE_ID": "a", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "a"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ineffectiveXDS(); len(got) != 2 || !strings.HasSuffix(got[0], "without CONFIG_TYPE=GRPC_XDS_SOTW") {
		t.Errorf("warnings %q", got)
	}
	s.ConfigType = configXDS
	const withoutTLS = "without CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
	if got := s.ineffectiveXDS(); len(got) != 1 || !strings.HasSuffix(got[0], withoutTLS) {
		t.Errorf("warnings %q", got)
	}
	for name, text := range map[string]string{
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "no such file", "CONFIG_GRPC_XDS_OVERLAY": "no such file",
	} {
		s, err := ReadSettings(Environment{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
			name: filepath.Join(t.TempDir(), "none")})
		if err != nil {
			t.Fatal(err)
		}
		err = Run(t.Context(), Config{Settings: s, Stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

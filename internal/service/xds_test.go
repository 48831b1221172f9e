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
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/xdsserver"
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
	_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.ConfigType = settings.ConfigXDS
		s.XDS.Server = server.Addr
		s.XDS.NodeID = "envoy-ratelimit"
		s.XDS.Headers = "x-team: shop,x-zone:a"
		s.XDS.NodeMetadata = settings.NodeMetadata{"team": "shop"}
		s.Rules.ForceStart = true
		s.Process.HealthyConfigs = true
		s.XDS.Overlay = overlay
		s.XDS.Backoff = time.Millisecond
		s.XDS.ConnectInterval = time.Millisecond
	}))
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
	env := configured(func(s *settings.Settings) {
		s.Rules.ConfigType = settings.ConfigXDS
		s.XDS.Server = server.Addr
	})
	run := func() (out *testenv.Output, stop context.CancelFunc, done chan error) {
		s := env
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
	for want, vars := range map[string]*settings.Settings{
		"GRPC_SERVER_TLS_CERT": configured(func(s *settings.Settings) {
			s.TLS.Use = true
			s.TLS.Cert = none
			s.TLS.Key = none
		}),
		"REDIS_URL": configured(func(s *settings.Settings) { s.Redis.Main.URL = "redis://127.0.0.1:6379/none" }),
	} {
		vars.Rules.ConfigType, vars.XDS.Server = settings.ConfigXDS, xdsserver.Start(t).Addr
		s := vars
		out := new(testenv.Output)
		err := Run(t.Context(), Config{Settings: s, Stderr: out})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(out.String(), "waiting") {
			t.Errorf("%s: %v\n%s", want, err, out)
		}
	}
}

// TestXDSFiles has settings whose files do not exist.
func TestXDSFiles(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for name, change := range map[string]func(*settings.XDS){
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": func(x *settings.XDS) { x.CACert = none },
		"CONFIG_GRPC_XDS_OVERLAY":           func(x *settings.XDS) { x.Overlay = none },
	} {
		s := configured(func(s *settings.Settings) { s.Rules.ConfigType, s.XDS.UseTLS = settings.ConfigXDS, true })
		change(&s.XDS)
		err := Run(t.Context(), Config{Settings: s, Stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

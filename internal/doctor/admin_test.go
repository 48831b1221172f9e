package doctor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

const manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// envoyWith is a configuration whose filters call the cluster limits. Its hosts are at ports 1 and 2, and the listener
// has port 10000.
const envoyWith = `
static_resources:
  listeners:
    - name: ingress
      address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": ` + manager + `
                stat_prefix: ingress
                route_config:
                  virtual_hosts:
                    - {name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}
                http_filters:
                  - name: envoy.filters.http.ext_authz
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
                      transport_api_version: V3
                      failure_mode_allow: true
                      grpc_service: {envoy_grpc: {cluster_name: limits}, timeout: 10s}
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
    - name: limits
      type: STATIC
      health_checks:
        - {timeout: 1s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1,
           tcp_health_check: {}}
      load_assignment:
        cluster_name: limits
        endpoints:
          - lb_endpoints:
              - {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}
              - {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 2}}}}
`

// TestExamine asks an Envoy whose cluster speaks HTTP/1.1 and has a host that does not listen, while requests pass
// without a decision.
func TestExamine(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	envoy := testenv.Envoy(t, envoyWith, testenv.Ports{10000: 0, 1: testenv.Port(t, upstream.Listener.Addr().String()),
		2: testenv.FreePort(t)})
	testenv.Eventually(t, func() error {
		if n := envoy.Stat("cluster.limits.membership_healthy"); n != 1 {
			return fmt.Errorf("%d healthy hosts", n)
		}
		return nil
	}, "one healthy host")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+envoy.Listener("ingress"), nil)
			if err != nil {
				panic(err) // the address is right
			}
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	testenv.Eventually(t, func() error {
		if envoy.Stat("http.ingress.ext_authz.failure_mode_allowed") == 0 {
			return fmt.Errorf("no request has passed")
		}
		return nil
	}, "a request to pass")
	address := "http://ann:swordfish@" + envoy.Admin + "/"
	c := Load(ctx, address, Rules{})
	c.Examine(ctx, address)
	wantFindings(t, &c.Report, "cluster-http1", "failing-open", "hosts-unhealthy")
	wantText(t, &c.Report, "http://"+envoy.Admin+": error: ext_authz: within 1s, ",
		"cluster `limits`: 1 of 2 hosts healthy", "Envoy 1.")
}

// TestNoEnvoy asks addresses that are no admin interface of Envoy. No password is repeated, and each answer is bounded.
func TestNoEnvoy(t *testing.T) {
	t.Parallel()
	answer := func(path, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path && path != "" {
				_, _ = io.WriteString(w, `{"configs": [{"@type": "a.HttpConnectionManager", "http_filters": `+
					`[{"@type": "a.RateLimit", "rate_limit_service": {"grpc_service": {"envoy_grpc": {"cluster_name": "c"}}}}]}]}`)
				return
			}
			_, _ = io.WriteString(w, body)
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for chunk := []byte(strings.Repeat("[", 1<<20)); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string // the findings
		text    string
	}{
		"another server": {http.NotFound, "envoy-unreadable", "404 Not Found"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			"envoy-unreadable", "302 Found"},
		"no JSON":           {answer("", "{"), "", "not YAML"},
		"without an end":    {endless, "", "larger than 64 MB"},
		"no stats":          {answer("/stats", "\x1b[2J"), "not-checked", "failures at this moment"},
		"a strange version": {answer("/server_info", `{"version": "a/\u001b[2J1.x/"}`), "not-checked", "has no number"},
		"no counters":       {answer("/none", ""), "not-checked", "failures of ratelimit: no counters: Envoy had no request"},
		"no hosts":          {answer("/none", ""), "hosts-unhealthy", "cluster `c`: 0 of 0 hosts healthy"},
		"an old version":    {answer("/server_info", `{"version": "a/1.30.0/"}`), "envoy-version", "Envoy 1.30.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.handler)
			defer server.Close()
			u, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword("ann", "swordfish")
			r := Load(t.Context(), u.String(), Rules{})
			r.Examine(t.Context(), u.String())
			if c.want != "" && !strings.Contains(fmt.Sprint(ids(&r.Report)), c.want) {
				t.Errorf("got the findings %v, want %s", ids(&r.Report), c.want)
			}
			wantText(t, &r.Report, c.text)
		})
	}
	for _, address := range []string{"http://ann:swordfish@127.0.0.1:1", "http://ann:sword fish@a", "http://"} {
		r := Load(t.Context(), address, Rules{})
		r.Examine(t.Context(), address)
		wantFindings(t, &r.Report, "envoy-unreadable")
		wantText(t, &r.Report)
		if !r.Unread {
			t.Errorf("%s was read", address)
		}
	}
}

func TestEnvoyVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"1.38.3": false, "1.38.4": true, "1.39.0": false, "1.39.1": true, "1.40.0": true, "1.41.2-dev": true, "2.0.0": true,
		"0.99.9": false,
	} {
		got, supported := envoyVersion("4f0/" + version + "/Clean/RELEASE/BoringSSL")
		if got != version || supported != want {
			t.Errorf("%s: got %s, supported %t, want %t", version, got, supported, want)
		}
	}
	for _, text := range []string{"", "1.40.0", "a/1.40/b", "a/x/b", "a//b"} {
		if got, _ := envoyVersion(text); got != "" {
			t.Errorf("%q: got %s, want none", text, got)
		}
	}
}

// TestKinds finds each kind of finding in the source, once in findings.txt and in Go at least once.
func TestKinds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			source.Write(content)
		}
	}
	seen := map[string]bool{}
	for _, k := range Kinds()[1:] { // the first is that of problems without an ID
		if seen[k.ID] || !strings.Contains(source.String(), `"`+k.ID+`"`) {
			t.Errorf("%s is in findings.txt twice, or never found", k.ID)
		}
		seen[k.ID] = true
		if k.Severity != "error" && k.Severity != "warning" || !strings.HasSuffix(k.Text, ".") || len(k.Remedy) == 0 {
			t.Errorf("%s: got %+v, want a severity, a sentence and a remedy", k.ID, k)
		}
	}
}

// ids returns the kinds of findings. Each must be in findings.txt.
func ids(r *Report) (list []string) {
	for _, f := range r.Findings {
		list = append(list, f.ID)
	}
	return list
}

// wantFindings compares the findings with kinds.
func wantFindings(t *testing.T, r *Report, want ...string) {
	t.Helper()
	got := ids(r)
	for _, id := range want {
		if !strings.Contains(fmt.Sprint(got), id) {
			t.Errorf("no finding %s in\n%v", id, r.Findings)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got the findings %v, want %v:\n%v", got, want, r.Findings)
	}
}

// wantText checks that a report has texts, no password and nothing that a terminal would execute.
func wantText(t *testing.T, r *Report, texts ...string) {
	t.Helper()
	all := r.Findings.Error() + "\n" + strings.Join(r.Facts, "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("no %q in\n%s", text, all)
		}
	}
	if strings.Contains(all, "fish") || strings.Contains(all, "\x1b") {
		t.Errorf("a password or a control character in\n%q", all)
	}
}

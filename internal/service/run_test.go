package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// serving is the line of the log with the addresses.
var serving = regexp.MustCompile(`level=INFO msg=serving grpc=(\S+) http=(\S+) debug=(\S+)`)

// start runs the service in this process until the test ends, and returns the addresses it listens on and its output.
func start(t *testing.T, configured *settings.Settings) (grpcAddr, httpAddr, debugAddr string, out *testenv.Output) {
	t.Helper()
	s := *configured // the test may change its settings after the start
	out = new(testenv.Output)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Config{Settings: &s, Stderr: out}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v\n%s", err, out)
		}
	})
	testenv.Eventually(t, matches(out, serving), "the service to say that it serves")
	m := serving.FindStringSubmatch(out.String())
	return m[1], m[2], m[3], out
}

// TestStartAndDrainAreAnnounced checks that the log has the addresses and the rules at every level, and that the banner
// appears only with the sample. Only on a terminal, the drain is announced with its duration.
func TestStartAndDrainAreAnnounced(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRoot(t)
	const banner, draining = "the built-in sample is served, on loopback only",
		"extauthz: draining for 0.05 s; press Ctrl-C again to stop now\n"
	for _, c := range []struct {
		name      string
		change    func(*settings.Settings)
		terminal  bool
		says, not []string
	}{
		{"rules", func(s *settings.Settings) { s.Rules.Root = root }, false,
			[]string{"store=memory rules=" + root + "/config generation="},
			[]string{banner, draining}},
		{"rules, on a terminal", func(s *settings.Settings) { s.Rules.Root = root }, true,
			[]string{"store=memory rules=" + root, draining},
			[]string{banner}},
		{"sample, on a terminal", nil, true, []string{banner, `rules="built-in sample"`}, []string{draining}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := configured(func(s *settings.Settings) {
				s.Telemetry.LogLevel = settings.LogLevel(slog.LevelError)
				s.Process.DrainDelay = 50 * time.Millisecond
			}, c.change)
			out := new(testenv.Output)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- Run(ctx, Config{Settings: s, Stderr: out, Terminal: c.terminal}) }()
			testenv.Eventually(t, matches(out, serving), "the start line")
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q in\n%s", not, out)
				}
			}
		})
	}
}

// TestStartLineIsPlain checks that addresses are texts in JSON logs, and that refused rules are not reported as served.
func TestStartLineIsPlain(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRoot(t)
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte("domain: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	s := configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Rules.ForceStart = true
		s.Telemetry.LogFormat = "json"
		s.Listeners.GRPCUDS = socket
	})
	out := new(testenv.Output)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Config{Settings: s, Stderr: out}) }()
	testenv.Eventually(t, matches(out, regexp.MustCompile(`"@message":"serving",.*\n`)), "the start line")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	want := regexp.MustCompile(`{"@timestamp":"[^"]+","level":"INFO","@message":"serving","grpc":"` + regexp.QuoteMeta(socket) +
		`","http":"127\.0\.0\.1:\d+","debug":"127\.0\.0\.1:\d+","store":"memory",` +
		`"rules":"none: the rules in [^"]+ are refused"}`)
	if !want.MatchString(out.String()) {
		t.Errorf("no %s in\n%s", want, out)
	}
}

// TestHangupDoesNotCutTheDrain checks that SIGHUP after SIGTERM does not end the process before the snapshot is
// written.
func TestHangupDoesNotCutTheDrain(t *testing.T) {
	t.Parallel()
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	cmd := exec.Command(program)
	cmd.Env = []string{
		"RUNTIME_ROOT=" + testenv.RulesRoot(t), "MEMORY_SNAPSHOT_PATH=" + snapshot, "DRAIN_DELAY=1s", "LOG_LEVEL=INFO",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
	}
	service := testenv.Start(t, cmd, func() error { return nil })
	says := func(text string) {
		testenv.Eventually(t, func() error {
			if !strings.Contains(service.Output(), text) {
				return errors.New("it has said:\n" + service.Output())
			}
			return nil
		}, text)
	}
	says("msg=serving")
	ended := make(chan error, 1)
	go func() { ended <- service.Terminate() }()
	says("msg=draining")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(snapshot); err != nil {
		t.Error(err)
	}
}

func matches(out *testenv.Output, pattern *regexp.Regexp) func() error {
	return func() error {
		if !pattern.MatchString(out.String()) {
			return fmt.Errorf("no %s in\n%s", pattern, out)
		}
		return nil
	}
}

// logged waits until the log has some texts, because it is written in the background. It returns the log.
func logged(t *testing.T, out *testenv.Output, texts ...string) string {
	t.Helper()
	for _, text := range texts {
		testenv.Eventually(t, matches(out, regexp.MustCompile(regexp.QuoteMeta(text))), "a line in the log")
	}
	return out.String()
}

// checkAs asks /check with an API key.
func checkAs(t *testing.T, addr, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/check/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestSample starts the service without settings, and sends the request that the banner shows.
func TestSample(t *testing.T) {
	t.Parallel()
	grpcAddr, httpAddr, debugAddr, out := start(t, configured())
	curl := regexp.MustCompile(`curl -i (\S+) -d '(.*)'`)
	testenv.Eventually(t, matches(out, curl), "a curl line in the banner")
	m := curl.FindStringSubmatch(out.String())
	for i := range 6 {
		res, err := http.Post(m[1], "application/json", strings.NewReader(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if res.StatusCode != want {
			t.Errorf("request %d: %d %s", i+1, res.StatusCode, body)
		}
		// A token comes back every 12 s; some of them have passed by now.
		retryAfter, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if i == 5 && (err != nil || retryAfter < 1 || retryAfter > 12 ||
			res.Header.Get("RateLimit-Policy") != `"per-key";q=5;w=60`) {
			t.Errorf("headers of the denial: %v", res.Header)
		}
	}
	for i, want := range []int{200, 200, 200, 200, 200, 429} {
		if code := checkAs(t, httpAddr, "demo"); code != want {
			t.Errorf("check %d with the demo key: %d, want %d", i+1, code, want)
		}
	}
	for key, want := range map[string]int{"": 401, "other": 403} {
		if code := checkAs(t, httpAddr, key); code != want {
			t.Errorf("check with the key %q: %d, want %d", key, code, want)
		}
	}
	for url, want := range map[string]string{
		httpAddr + "/healthcheck": "OK", httpAddr + "/livez": "OK", httpAddr + "/readyz": "OK",
		debugAddr + "/":          "/rlconfig",
		debugAddr + "/rlconfig":  "sample.api_key: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false",
		debugAddr + "/metrics":   `decisions_total{decision="denied",domain="sample",limit="per-key",rule="api_key"} 1`,
		debugAddr + "/metrics?#": `extauthz_authz_decisions_total{domain="sample",reason="invalid"} `,
		debugAddr + "/metrics??": `extauthz_plaintext_listener{listener="grpc"} 0`,
		debugAddr + "/metrics?":  `extauthz_requests_total{code="OK",rpc="/check"} 8`,
	} {
		if code, body := get(t, "http://"+url); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q in\n%s", url, code, want, body)
		}
	}
	if code, _ := get(t, "http://"+debugAddr+"/stats"); code != http.StatusNotFound { // of envoyproxy/ratelimit
		t.Errorf("/stats: %d, want 404", code)
	}
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService",
		"envoy.service.auth.v3.Authorization"} {
		res, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || res.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, res, err)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	_, httpAddr, _, _ := start(t, configured())
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"domain":"none","descriptors":[{"entries":[{"key":"a"}]}]}`, 200, `"overallCode":"OK"`},
		{`{"domain":"sample"}`, 400, "rate limit descriptor list must not be empty"},
		{`{"descriptors":[{"entries":[{"key":"a"}]}]}`, 400, "rate limit domain must not be empty"},
		{`{"domane":"sample"}`, 400, `unknown field "domane"`},
		{`{`, 400, "want for example {"},
		{``, 400, "want for example {"},
		{strings.Repeat(" ", 2<<20), 400, "has more than 1048576 bytes"},
		{`{"domain":"sample","descriptors":[{"entries":[{"key":"api_key","value":"k"}],"limit":{"requestsPerUnit":1}}]}`, 400,
			"unit 0 is unknown"},
		{`{"domain":"sample","descriptors":[{"entries":[{"key":"api_key","value":"` + strings.Repeat("long", 100_000) +
			`"}]}]}`, 200, `"limitRemaining":4`},
		{`{"domain":"sample","descriptors":[{"entries":[{"key":"api_key","value":"\u0000{}"}],` +
			`"hitsAddend":"18446744073709551615"}]}`, 429, "OVER_LIMIT"},
	} {
		res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("%.100s: %d %s %v; want %d %s", c.body, res.StatusCode, body, err, c.code, c.want)
		}
	}
}

// TestReload checks that changed rules take effect, that rules with a mistake do not, and that both are logged.
func TestReload(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "config")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(content string) {
		t.Helper()
		temp := filepath.Join(root, "next")
		if err := os.WriteFile(temp, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, filepath.Join(dir, "rules.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	_, _, debugAddr, out := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	shows := func(want string) func() error {
		return func() error {
			if _, body := get(t, "http://"+debugAddr+"/rlconfig"); !strings.Contains(body, want) {
				return fmt.Errorf("no %q in\n%s", want, body)
			}
			return nil
		}
	}
	testenv.Eventually(t, shows("requests_per_unit=1,"), "the first rules")
	write("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 2}}]\n")
	testenv.Eventually(t, shows("requests_per_unit=2,"), "the changed rules")
	logged(t, out, ` added=[] removed=[] changed=[d.k]`)
	write("domain: d\ndescriptors: [{key: k, rate_limit: {unit: our, requests_per_unit: 3}}]\n")
	testenv.Eventually(t, shows("rules.yaml:2:"), "the mistake is shown")
	refused := regexp.MustCompile(`msg="rules refused; the previous rules stay active" .*errors=1 ` +
		`problems.0="\S*rules.yaml:2:\d+: error: .*; did you mean .hour`)
	testenv.Eventually(t, matches(out, refused), "a line in the log")
	if err := shows("requests_per_unit=2,")(); err != nil {
		t.Errorf("the previous rules are not active after a mistake: %v", err)
	}
	if _, body := get(t, "http://"+debugAddr+"/metrics"); !strings.Contains(body,
		"extauthz_config_last_reload_successful 0") {
		t.Error("no metric of the refused rules")
	}
	write("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 2}}]\n")
	logged(t, out, `msg="rules reloaded" `, ` added=[] removed=[] changed=[]`)
	write("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 4}}]\n")
	testenv.Eventually(t, shows("requests_per_unit=4,"), "the fixed rules")
	if shows("refused")() == nil {
		t.Error("the mistake is still shown")
	}
}

// TestCutRules checks that a truncated rule file is reported and waits. The same text takes effect when it is renamed
// into place.
func TestCutRules(t *testing.T) {
	t.Parallel()
	const whole = `domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	upTo := func(mark string) string { return strings.SplitN(whole, mark, 2)[0] }
	root := testenv.RulesRoot(t)
	file := filepath.Join(root, "config", "rules.yaml")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(file, whole)
	_, _, debugAddr, out := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	shows := func(page, want string) func() error {
		return func() error {
			if _, body := get(t, "http://"+debugAddr+page); !strings.Contains(body, want) {
				return fmt.Errorf("no %q in\n%s", want, body)
			}
			return nil
		}
	}
	inForce := func() {
		t.Helper()
		for _, key := range []string{"d.a:", "d.b:", "d.c:"} {
			if err := shows("/rlconfig", key)(); err != nil {
				t.Error(err)
			}
		}
	}

	write(file, upTo("  - {key: c"))
	testenv.Eventually(t, shows("/rlconfig", "rules.yaml:4:1: error: the file ends here"), "the cut to be shown")
	testenv.Eventually(t, matches(out, regexp.MustCompile("rules refused.*the file ends here")), "the cut to be logged")
	inForce()
	if err := shows("/metrics", "extauthz_config_last_reload_successful 0")(); err != nil {
		t.Error(err)
	}

	replace := func(content string) {
		t.Helper()
		next := filepath.Join(filepath.Dir(file), "..new")
		write(next, content)
		earlier := time.Now().Add(-time.Minute) // in another tick of the file system's clock than the rename
		if err := os.Chtimes(next, earlier, earlier); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	replace(upTo("  - {key: c"))
	testenv.Eventually(t, func() error {
		if shows("/rlconfig", "d.c:")() == nil {
			return errors.New("the third rule is still active")
		}
		return nil
	}, "the renamed file to take effect")
	if err := shows("/metrics", "extauthz_config_last_reload_successful 1")(); err != nil {
		t.Error(err)
	}
}

// TestUnixSocket serves gRPC on a socket, and checks that a second service does not take the socket over.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rls.sock")
	start(t, configured(func(s *settings.Settings) {
		s.Listeners.GRPCUDS = path
		s.Rules.Root = testenv.RulesRoot(t)
	}))
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	s := &settings.Settings{Listeners: settings.Listeners{GRPCUDS: path}}
	if _, err := listen(s, nil, bounds{}); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a second service on the socket: %v", err)
	}
}

// TestProfiles checks that profiles need DEBUG_PPROF=true. They are on the debug port if that is on loopback. Otherwise
// they are on a separate port on loopback.
func TestProfiles(t *testing.T) {
	t.Parallel()
	const page = "/debug/pprof/goroutine?debug=1"
	for name, c := range map[string]struct {
		change     func(*settings.Settings)
		debug, own bool
	}{
		"by default":               {nil, false, false},
		"off":                      {func(s *settings.Settings) { s.Listeners.Pprof = false }, false, false},
		"on":                       {func(s *settings.Settings) { s.Listeners.Pprof = true }, true, false},
		"off, the debug port open": {func(s *settings.Settings) { s.Listeners.DebugHost = "0.0.0.0" }, false, false},
		"on, the debug port open": {func(s *settings.Settings) {
			s.Listeners.DebugHost = "0.0.0.0"
			s.Listeners.Pprof = true
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			vars := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRoot(t)
				s.Listeners.PprofPort = 0
			}, c.change)
			_, _, debugAddr, out := start(t, vars)
			_, port, _ := net.SplitHostPort(debugAddr)
			debug := "http://127.0.0.1:" + port
			code, body := get(t, debug+page)
			if got := code == http.StatusOK && strings.Contains(body, "goroutine profile"); got != c.debug {
				t.Errorf("on the debug port: %d %.100q; want profiles: %v", code, body, c.debug)
			}
			if !c.debug && (code != http.StatusNotFound || !strings.Contains(body, "DEBUG_PPROF")) {
				t.Errorf("on the debug port: %d %q; want 404, and the setting", code, body)
			}
			if _, index := get(t, debug+"/"); strings.Contains(index, "/debug/pprof/") != c.debug {
				t.Errorf("the index shows profiles: want %v in\n%s", c.debug, index)
			}
			own := regexp.MustCompile(`msg="serving profiles" pprof=(\S+)`).FindStringSubmatch(out.String())
			if (own != nil) != c.own {
				t.Fatalf("a port of their own: %q, want %v", own, c.own)
			}
			if !c.own {
				return
			}
			if host, _, _ := net.SplitHostPort(own[1]); host != "127.0.0.1" {
				t.Errorf("profiles are on %s, want loopback", own[1])
			}
			if code, body := get(t, "http://"+own[1]+page); code != http.StatusOK ||
				!strings.Contains(body, "goroutine profile") {
				t.Errorf("on the port of their own: %d %.100q", code, body)
			}
			if code, _ := get(t, "http://"+own[1]+"/rlconfig"); code != http.StatusNotFound {
				t.Errorf("/rlconfig on the port of profiles: %d, want 404", code)
			}
		})
	}
}

// TestPlaintext checks that each listener that other machines can reach without TLS is logged and counted. With
// STRICT_ENVIRONMENT such a gRPC or HTTP listener stops the start, unless GRPC_PLAINTEXT=allow is set.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	loopback := settings.Listeners{Host: "127.0.0.1", GRPCHost: "localhost", DebugHost: "127.0.0.1"}
	socket := filepath.Join(t.TempDir(), "rls.sock")
	const grpcOpen, httpOpen, debugOpen = "gRPC has no TLS", "HTTP has no TLS", "other machines can reach the debug port"
	for _, c := range []struct {
		name    string
		change  func(*settings.Listeners)
		warn    []string
		refused string // with STRICT_ENVIRONMENT; "": it starts
		grpc    bool   // reachable
		http    bool
		debug   bool
	}{
		{"loopback", func(*settings.Listeners) {}, nil, "", false, false, false},
		{"HTTP", func(l *settings.Listeners) { l.Host = "0.0.0.0" }, []string{httpOpen}, "HOST=0.0.0.0: ", false, true,
			false},
		{"gRPC", func(l *settings.Listeners) { l.GRPCHost = "0.0.0.0" }, []string{grpcOpen}, "GRPC_HOST=0.0.0.0: ", true,
			false, false},
		{"both, and debug", func(l *settings.Listeners) { l.Host, l.GRPCHost, l.DebugHost = "", "::", "0.0.0.0" },
			[]string{grpcOpen, httpOpen, debugOpen}, "GRPC_HOST=:: and HOST=: ", true, true, true},
		{"a socket", func(l *settings.Listeners) { l.GRPCUDS, l.GRPCHost = socket, "0.0.0.0" }, nil, "", false, false, false},
		{"debug", func(l *settings.Listeners) { l.DebugHost = "0.0.0.0" }, []string{debugOpen}, "", false, false, true},
		{"allowed", func(l *settings.Listeners) { l.Host, l.GRPCHost, l.Plaintext = "0.0.0.0", "0.0.0.0", "allow" }, nil, "",
			true,
			true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings.Settings{Listeners: loopback}
			c.change(&s.Listeners)
			l, err := listen(&s, nil, bounds{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			out := new(testenv.Output)
			log := newLogger(Config{Settings: &settings.Settings{}, Stderr: out})
			if err := checkPlaintext(&s, l, log); err != nil {
				t.Errorf("without STRICT_ENVIRONMENT: %v", err)
			}
			if n := strings.Count(out.String(), "level=WARN"); n != len(c.warn) {
				t.Errorf("%d warnings, want %q in\n%s", n, c.warn, out)
			}
			for _, want := range c.warn {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			got := map[string]bool{}
			for name, listener := range l.guarded {
				got[name] = reachable(listener)
			}
			if diff := cmp.Diff(map[string]bool{"grpc": c.grpc, "http": c.http, "debug": c.debug}, got); diff != "" {
				t.Error(diff)
			}
			s.Process.StrictEnvironment = true
			err = checkPlaintext(&s, l, log)
			if (err != nil) != (c.refused != "") || err != nil && (!strings.HasPrefix(err.Error(), c.refused) ||
				!strings.Contains(err.Error(), "GRPC_PLAINTEXT=allow")) {
				t.Errorf("with STRICT_ENVIRONMENT: %v; want %q and GRPC_PLAINTEXT=allow", err, c.refused)
			}
		})
	}
}

// TestHealthOfTheService runs extauthz health with the environment of the service.
func TestHealthOfTheService(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	env := configured(func(s *settings.Settings) {
		s.Listeners.GRPCUDS = socket
		s.Rules.Root = testenv.RulesRoot(t)
	})
	_, httpAddr, _, _ := start(t, env)
	for _, args := range []string{"health", "health --service ratelimit", "health --http http://" + httpAddr + "/readyz"} {
		if code, _, stderr := runProgram(t, env, "", append(strings.Fields(args), "--timeout=1m")...); code != exitOK {
			t.Errorf("%s: exit code %d\n%s", args, code, stderr)
		}
	}
}

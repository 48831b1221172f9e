package xds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/xds"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/xdsserver"
)

// config returns a configuration with one limit of 5 a minute.
func config(name, domain, key string) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: name, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_MINUTE, RequestsPerUnit: 5},
	}}}
}

// client is a client of a test, and what it has reported.
type client struct {
	*xds.Client
	t       *testing.T
	log     *testenv.Output
	ctx     context.Context
	mu      sync.Mutex
	reports []string
}

// newClient returns a client that connects again at once when a connection or a stream has failed.
func newClient(t *testing.T, server string, cfg xds.Config) *client {
	t.Helper()
	cfg.Server, cfg.Node.ID = server, "test"
	cfg.ConnectInterval, cfg.Backoff = time.Millisecond, xds.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	c := &client{t: t, log: new(testenv.Output)}
	cfg.Log = slog.New(slog.NewTextHandler(c.log, nil))
	var err error
	if c.Client, err = xds.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = ctx
	t.Cleanup(cancel)
	return c
}

// load waits for the first rules, and follows the server from then on.
func (c *client) load() string {
	c.t.Helper()
	set, problems := c.Load(c.ctx)
	go c.Run(c.ctx, func(u rules.Update) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reports = append(c.reports, summary(u.Set, u.Problems))
	})
	return summary(set, problems)
}

// awaitReports waits until the client has reported these changes, and no others, since the last call.
func (c *client) awaitReports(want ...string) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(c.reports, want) {
			return fmt.Errorf("the reports are %q, want %q", c.reports, want)
		}
		c.reports = nil
		return nil
	}, "the reports of the client")
}

// awaitLog waits until a text is in the log.
func (c *client) awaitLog(want string) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		if !strings.Contains(c.log.String(), want) {
			return fmt.Errorf("no %q in the log:\n%s", want, c.log)
		}
		return nil
	}, "a line in the log")
}

// summary returns the names of the rules in a set, or its errors.
func summary(set rules.Set, problems rules.Problems) string {
	var list []string
	if problems.HasErrors() {
		for _, p := range problems {
			if !p.Warning {
				list = append(list, p.Message)
			}
		}
		return "refused: " + strings.Join(list, "; ")
	}
	live := rules.NewLive(rules.Options{})
	live.Activate(set, nil)
	for _, r := range live.Limits().All() {
		list = append(list, fmt.Sprintf("%s.%s %s", r.Domain, r.Name, r.Limits[0].Algorithm))
	}
	return strings.Join(list, ", ")
}

// TestClient follows a server through good, broken, smaller and empty states. Each response is accepted or refused
// with its nonce, and a refusal names the version of the last good response.
func TestClient(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	c := newClient(t, server.Addr, xds.Config{})
	user, account := config("a", "shop", "user"), config("b", "bank", "account")
	large := config("a", "shop", "user")
	large.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"list": structpb.NewListValue(
		&structpb.ListValue{Values: slices.Repeat([]*structpb.Value{structpb.NewNullValue()}, wire.MostValues)})}}
	first := server.Send("1", user, config("b", "shop", "user"), config("c", "", ""))
	loaded := make(chan string)
	go func() { loaded <- c.load() }()
	refusal := server.Answer(first)
	const mistakes = "resource `b`: domain: duplicate domain `shop` in config file\n" +
		"resource `c`: domain: config file cannot have empty domain\n" +
		"resource `c`: descriptors[0]: descriptor has empty key"
	if diff := cmp.Diff(mistakes, refusal.GetErrorDetail().GetMessage()); diff != "" {
		t.Errorf("mistakes of the first response (-want +got)\n%s", diff)
	}
	code := codes.Code(refusal.GetErrorDetail().GetCode())
	if v := refusal.GetVersionInfo(); v != "" || code != codes.InvalidArgument {
		t.Errorf("the refusal has version %q and %s", v, code)
	}
	server.Send("2", user, account)
	const both = "shop.user sliding_window_log, bank.account sliding_window_log"
	if got := <-loaded; got != both {
		t.Errorf("loaded %q", got)
	}
	c.awaitLog("duplicate domain `shop`")
	for _, step := range []struct {
		name      string
		version   string
		configs   []*ratelimitv3.RateLimitConfig
		report    []string
		accepted  string // version of the answer
		refusedAs string
	}{
		{name: "the same resources in another order", version: "3",
			configs: []*ratelimitv3.RateLimitConfig{account, user}, accepted: "3"},
		{name: "a mistake", version: "4", configs: []*ratelimitv3.RateLimitConfig{config("a", "shop", "")},
			report: []string{"refused: descriptor has empty key"}, accepted: "3",
			refusedAs: "resource `a`: descriptors[0]: descriptor has empty key"},
		{name: "too much metadata", version: "4a", configs: []*ratelimitv3.RateLimitConfig{large},
			report: []string{"refused: `metadata` has more than 4096 values"}, accepted: "3",
			refusedAs: "resource `a`: `metadata` has more than 4096 values"},
		{name: "the rules before the mistake", version: "5",
			configs: []*ratelimitv3.RateLimitConfig{user, account}, report: []string{both}, accepted: "5"},
		{name: "a domain less", version: "6", configs: []*ratelimitv3.RateLimitConfig{account},
			report: []string{"bank.account sliding_window_log"}, accepted: "6"},
		{name: "nothing", version: "7", report: []string{""}, accepted: "7"},
	} {
		answer := server.Answer(server.Send(step.version, step.configs...))
		if got := answer.GetErrorDetail().GetMessage(); got != step.refusedAs || answer.GetVersionInfo() != step.accepted {
			t.Errorf("%s: answer with version %q and mistakes %q", step.name, answer.GetVersionInfo(), got)
		}
		c.awaitReports(step.report...)
	}
}

// TestEmptyStateIsValid: a server without rules is no reason to wait.
func TestEmptyStateIsValid(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	nonce := server.Send("1")
	c := newClient(t, server.Addr, xds.Config{})
	set, problems := c.Load(c.ctx)
	if len(set.Domains) > 0 || len(problems) > 0 || set.Generation == "" {
		t.Errorf("loaded %+v, %v", set, problems)
	}
	if answer := server.Answer(nonce); answer.GetErrorDetail() != nil || answer.GetVersionInfo() != "1" {
		t.Errorf("answer %v", answer)
	}
}

// TestLoadWithoutWaiting returns no rules, and reports them when they come. Load ends with its context, too.
func TestLoadWithoutWaiting(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	c := newClient(t, server.Addr, xds.Config{NoWait: true})
	if got := c.load(); got != "" {
		t.Errorf("loaded %q", got)
	}
	server.Send("1", config("a", "shop", "user"))
	c.awaitReports("shop.user sliding_window_log")

	waiting := newClient(t, testenv.Loopback(testenv.FreePort(t)), xds.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if set, problems := waiting.Load(ctx); set.Generation != "" || problems != nil {
		t.Errorf("loaded %+v, %v", set, problems)
	}
}

// TestSubscription sends the node, its metadata and the headers with each stream, and no version.
func TestSubscription(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	metadata, err := xds.ParseMetadata(`{"team": "shop", "zones": ["a", 2, true]}`)
	if err != nil {
		t.Fatal(err)
	}
	server.Send("7", config("a", "shop", "user"))
	c := newClient(t, server.Addr, xds.Config{
		Node: xds.Node{Metadata: metadata}, Headers: map[string]string{"x-team": "shop"},
	})
	c.load()
	for stream := range 2 {
		r, headers := server.Subscription(stream + 1)
		if diff := cmp.Diff(metadata, r.GetNode().GetMetadata().AsMap()); diff != "" {
			t.Errorf("metadata (-want +got)\n%s", diff)
		}
		if r.GetNode().GetId() != "test" || r.GetTypeUrl() != xdsserver.Type || r.GetVersionInfo() != "" ||
			r.GetResponseNonce() != "" || len(headers["x-team"]) != 1 {
			t.Errorf("stream %d: %v, headers %v", stream, r, headers)
		}
		server.Stop()
		server.Restart()
	}
}

// TestOutage stops the server and starts it again: the rules stay, and only other rules are reported.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	server.Send("1", config("a", "shop", "user"))
	c := newClient(t, server.Addr, xds.Config{})
	c.load()
	connected := func(want bool) {
		t.Helper()
		testenv.Eventually(t, func() error {
			if c.Connected() != want {
				return fmt.Errorf("Connected() is %t", !want)
			}
			return nil
		}, "the state of the connection")
	}
	connected(true)
	server.Stop()
	connected(false)
	c.awaitLog(`level=WARN msg="cannot connect to the xDS server; the rules stay as they are`)
	server.Restart()
	connected(true)
	server.Answer(server.Send("1", config("a", "shop", "user")))
	server.Stop()
	nonce := server.Send("1", config("a", "shop", "device")) // the same version: the server counts from the beginning
	server.Restart()
	server.Answer(nonce)
	c.awaitReports("shop.device sliding_window_log")
	c.awaitLog(`level=WARN msg="connected to the xDS server"`)
}

// TestForeignResponses refuses resources and responses of another type, and resources that are no messages.
func TestForeignResponses(t *testing.T) {
	t.Parallel()
	server := xdsserver.Start(t)
	server.Send("1", config("a", "shop", "user"))
	c := newClient(t, server.Addr, xds.Config{})
	c.load()
	const other = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	for _, step := range []struct {
		response *discoveryv3.DiscoveryResponse
		want     string
	}{
		{&discoveryv3.DiscoveryResponse{TypeUrl: other}, "response: the response has resources of type `" + other + "`"},
		{&discoveryv3.DiscoveryResponse{TypeUrl: xdsserver.Type, Resources: []*anypb.Any{{TypeUrl: other}}},
			"resource 1: the resource has the type `" + other + "`"},
		{&discoveryv3.DiscoveryResponse{TypeUrl: xdsserver.Type, Resources: []*anypb.Any{
			{TypeUrl: xdsserver.Type, Value: []byte("\x0a\x01")}}}, "resource 1: malformed protobuf message"},
	} {
		answer := server.Answer(server.SendResponse(step.response))
		if got := answer.GetErrorDetail().GetMessage(); got != step.want || answer.GetTypeUrl() != xdsserver.Type ||
			answer.GetVersionInfo() != "1" {
			t.Errorf("answer %v, want mistakes %q", answer, step.want)
		}
	}
}

// TestTLS connects with a client certificate, refuses a server of another name or authority, and shows a renewed
// certificate with the next connection.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca, dir := testenv.NewAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.Write(t, file("ca.pem"))
	testenv.NewAuthority(t).Write(t, file("other.pem"))
	var mu sync.Mutex
	peer := ""
	server := xdsserver.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "spiffe://example.org/xds", time.Hour)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool,
		VerifyConnection: func(s tls.ConnectionState) error {
			mu.Lock()
			defer mu.Unlock()
			peer = s.PeerCertificates[0].URIs[0].String()
			return nil
		},
	})))
	awaitPeer := func(want string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if peer != want {
				return fmt.Errorf("it is %s", peer)
			}
			return nil
		}, "a client named "+want)
	}
	server.Send("1", config("a", "shop", "user"))
	issue := func(name string) {
		testenv.WriteCertificate(t, ca.Issue(t, name, time.Hour), file("cert.pem"), file("key.pem"))
	}
	issue("spiffe://example.org/first")
	connect := func(authority, san string) *client {
		files, err := certs.NewClient(certs.ClientFiles{
			CA: file(authority), Cert: file("cert.pem"), Key: file("key.pem"), ServerName: san,
		})
		if err != nil {
			t.Fatal(err)
		}
		// The certificate of the server is not for this host.
		return newClient(t, strings.Replace(server.Addr, "127.0.0.1", "localhost", 1), xds.Config{TLS: files.Config})
	}
	if got := connect("ca.pem", "127.0.0.1").load(); got != "shop.user sliding_window_log" {
		t.Errorf("loaded %q", got)
	}
	awaitPeer("spiffe://example.org/first")
	issue("spiffe://example.org/second")
	server.Stop()
	server.Restart()
	awaitPeer("spiffe://example.org/second")
	for _, wrong := range []struct{ authority, san, want string }{
		{"ca.pem", "", "not valid for any names"}, {"other.pem", "127.0.0.1", "unknown authority"},
	} {
		c := connect(wrong.authority, wrong.san)
		go c.Load(c.ctx)
		c.awaitLog(wrong.want)
	}
}

// TestOverlayIsReloaded changes an overlay while the client runs. A mistake and a text that is cut off leave the
// previous one active.
func TestOverlayIsReloaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	overlay := func(algorithm string) string {
		return "domains:\n  - domain: shop\n    rules:\n      - {rule: user, rate_limit: {algorithm: " + algorithm + "}}\n" +
			"  - domain: bank\n    rules:\n      - {rule: account, rate_limit: {on_store_error: deny}}\n"
	}
	replace := func(content string) {
		t.Helper()
		earlier := time.Now().Add(-time.Minute) // in another tick of the file system's clock than the rename
		err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Chtimes(path+".new", earlier, earlier),
			os.Rename(path+".new", path))
		if err != nil {
			t.Fatal(err)
		}
	}
	server := xdsserver.Start(t)
	user, account := config("a", "shop", "user"), config("b", "bank", "account")
	server.Send("1", user, account)
	for _, mistake := range []string{
		"domains: [{domain: shop, rules: [{rule: user}]}]\n",
		"networks: {office: [10.0.0.1/8]}\ndomains: []\n",
		"domains: [{domain: none, authz: {anonymous: allow, access: [{networks: [office], require: denied}]}}]\n",
	} {
		replace(mistake)
		if _, problems := newClient(t, server.Addr, xds.Config{Overlay: path}).Load(t.Context()); !problems.HasErrors() {
			t.Errorf("a start with a mistake in the overlay %s", mistake)
		}
	}
	replace(overlay("token_bucket"))
	c := newClient(t, server.Addr, xds.Config{Overlay: path})
	const bank = ", bank.account sliding_window_log"
	if got := c.load(); got != "shop.user token_bucket"+bank {
		t.Errorf("loaded %q", got)
	}
	replace(overlay("leaky_bucket"))
	c.awaitReports("shop.user leaky_bucket" + bank)
	replace(overlay("tokenbuket"))
	c.awaitReports("refused: `algorithm` cannot be `tokenbuket`")
	server.Answer(server.Send("2", user, account, config("c", "new", "x")))
	c.awaitReports("shop.user leaky_bucket" + bank + ", new.x sliding_window_log")
	whole := overlay("token_bucket")
	replace(whole)
	c.awaitReports("shop.user token_bucket" + bank + ", new.x sliding_window_log")
	begin, _, _ := strings.Cut(whole, "  - domain: bank")
	if err := os.WriteFile(path, []byte(begin), 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitReports("refused: the file ends here, but the active rules continue for 3 lines: it takes effect when it has " +
		"been unchanged for 10s, because it may still be being written")
	replace(begin)
	c.awaitReports("shop.user token_bucket" + bank + ", new.x sliding_window_log")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c.awaitReports("refused: read overlay: no such file or directory")
}

// TestOverlayIsCorrected refuses responses that contradict the overlay, and accepts them when the overlay is corrected,
// before there are rules and afterwards.
func TestOverlayIsCorrected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	tag := func(key string) {
		t.Helper()
		text := "domains: [{domain: shop, rules: [{name: tagged, rate_limit: {hash_tag: " + key + "}}]}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(key string) *ratelimitv3.RateLimitConfig {
		c := config("a", "shop", key)
		c.Descriptors[0].RateLimit.Name = "tagged"
		return c
	}
	server := xdsserver.Start(t)
	tag("user")
	c := newClient(t, server.Addr, xds.Config{Overlay: path})
	first := server.Send("1", rule("device"))
	loaded := make(chan string)
	go func() { loaded <- c.load() }()
	if got := server.Answer(first).GetErrorDetail().GetMessage(); !strings.Contains(got, "names no entry") {
		t.Errorf("refused for %q", got)
	}
	tag("device")
	if got := <-loaded; got != "shop.device sliding_window_log" {
		t.Errorf("loaded %q", got)
	}
	server.Accepted(first)
	second := server.Send("2", rule("account"))
	server.Answer(second)
	const mistake = "refused: `hash_tag` names no entry on the way to this limit: `device`"
	c.awaitReports(mistake)
	tag("account")
	if v := server.Accepted(second).GetVersionInfo(); v != "2" {
		t.Errorf("accepted as version %q", v)
	}
	c.awaitReports("shop.account sliding_window_log")
}

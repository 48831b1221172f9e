package service

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestRequestsOfWebPages sends what a browser sends for a page of another site, or for one whose name leads to
// loopback. /json and the debug port refuse both. /check decides, because its headers are those of the request that
// Envoy asks about.
func TestRequestsOfWebPages(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRootWith(t, "domain: shop\nauthz: {anonymous: allow}\ndescriptors: [{key: user}]\n")
	serve := func(host string) (address, debug string) {
		_, address, debug, _ = start(t, configured(func(s *settings.Settings) {
			s.Rules.Root, s.Listeners.Pprof = root, host == "127.0.0.1"
			s.Listeners.Host, s.Listeners.DebugHost = host, host
		}))
		return address, debug
	}
	local, localDebug := serve("127.0.0.1")
	open, openDebug := serve("0.0.0.0")
	for _, c := range []struct{ host, site, local, open string }{
		{"localhost", "", "", ""},
		{"localhost:8080", "none", "", ""},
		{"LOCALHOST.", "same-origin", "", ""},
		{"a.localhost:8080", "same-site", "", ""},
		{"127.0.0.1", "", "", ""},
		{"127.1.2.3:6070", "", "", ""},
		{"[::1]", "", "", ""},
		{"[::1]:6070", "", "", ""},
		{"[::ffff:127.0.0.1]:6070", "", "", ""},
		{"", "", "", ""},
		{"evil.example", "", "answers only to the Host localhost", ""},
		{"evil.example:6070", "same-origin", "answers only to the Host localhost", ""},
		{"localhost.evil.example", "", "answers only to the Host localhost", ""},
		{"notlocalhost", "", "answers only to the Host localhost", ""},
		{"192.0.2.1:6070", "", "answers only to the Host localhost", ""},
		{"127.0.0.1.nip.io", "", "answers only to the Host localhost", ""},
		{"[::2]:6070", "", "answers only to the Host localhost", ""},
		{"localhost", "cross-site", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: cross-site"},
		{"evil.example", "cross-site", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: cross-site"},
	} {
		for _, to := range []struct{ address, request, want string }{
			{local, "POST /json", c.local},
			{local, "GET /check/json", ""},
			{local, "GET /healthcheck", ""},
			{localDebug, "GET /rlconfig", c.local},
			{localDebug, "GET /metrics", c.local},
			{localDebug, "GET /debug/pprof/cmdline", c.local},
			{localDebug, "GET /", c.local},
			{localDebug, "GET /rules", c.local},
			{localDebug, "GET /ask?domain=shop&descriptor=user%3Da", c.local},
			{open, "POST /json", c.open},
			{open, "GET /check/json", ""},
			{openDebug, "GET /rlconfig", c.open},
		} {
			status, body := sendAs(t, to.address, to.request, c.host, c.site)
			if refused := status == http.StatusForbidden; refused != (to.want != "") || !strings.Contains(body, to.want) {
				t.Errorf("%s with the Host %q, Sec-Fetch-Site %q: got %d %s, want %q", to.request, c.host, c.site, status, body,
					to.want)
			}
		}
	}
}

// sendAs sends a request, with a message for /json, on a connection of its own.
func sendAs(t *testing.T, address, request, host, site string) (status int, body string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const patience = 20 * time.Second // it only waits that long if the test fails
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", request, host,
		len(rls.Example))
	if site != "" {
		fmt.Fprintf(conn, "Sec-Fetch-Site: %s\r\n", site)
	}
	fmt.Fprintf(conn, "\r\n%s", rls.Example)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

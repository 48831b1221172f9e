package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// hostRules deny all requests for one host and two addresses.
const hostRules = `
domain: sample
authz:
  anonymous: allow
  access:
    - { hosts: [admin.example.com, "2001:db8::1", 127.0.0.1], require: denied }
  limits:
    - actions: [{ host: }]
descriptors:
  - { key: host, value: busy.example.com, rate_limit: { unit: hour, requests_per_unit: 0 } }
`

// TestHosts sends variants of a denied host. A client could hope that the service reads another name and the upstream
// reads the denied one.
func TestHosts(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, hostRules)
	service := startService(t, "RUNTIME_ROOT="+root, "AUTHZ_HTTP_TIMEOUT=2s")
	overGRPC := startRawEnvoy(t, service.grpcPort)
	_, httpPort, _ := net.SplitHostPort(strings.TrimPrefix(service.http, "http://"))
	for _, c := range []struct {
		name  string
		envoy *proxy
	}{
		{"gRPC", overGRPC},
		{"HTTP", startRawEnvoy(t, service.grpcPort, overHTTP(httpPort))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for host, want := range hostStatuses() {
				testHost(t, c.envoy, host, want)
			}
			testTwoHosts(t, c.envoy)
		})
	}
}

// hostStatuses returns hosts and the status of a request with each.
func hostStatuses() map[string]int {
	const ok, bad, denied, limited = 200, 400, 403, 429
	statuses := map[string]int{
		"www.example.com": ok, "www.example.com:8080": ok, "WWW.example.com.": ok, "www.example.com.:80": ok,
		"www_1.example.com": ok, "localhost": ok, "192.0.2.1": ok, "192.0.2.1:80": ok, "[2001:db8::2]": ok,
		"[2001:db8::2]:8443": ok, "xn--bcher-kva.example": ok, "[2001:db8::1]": denied, "[2001:DB8:0::1]:80": denied,
		"[2001:0db8:0000:0:0:0:0:1]": denied, "0x7f.1": bad, "127.1": bad, "0177.0.0.1": bad, "2130706433": bad,
		"127.0.0.1.": denied, "": bad, ".": bad, ":": bad, ":80": bad, "[": bad, "[]": bad, "[]:80": bad, "::1": bad,
		"2001:db8::1": bad, "[2001:db8::1": bad, "2001:db8::1]": bad, "[2001:db8::1]x": bad, "[2001:db8::1]80": bad,
		"[2001:db8::1]:": bad, "[2001:db8::1]:80:80": bad, "[2001:db8::1%25eth0]": bad, "[2001:db8::1%eth0]:80": bad,
		"[192.0.2.1]": bad, "[[2001:db8::1]]": bad, "[v1.x]": bad,
	}
	for _, closed := range []struct {
		name string
		want int
	}{{"admin.example.com", denied}, {"busy.example.com", limited}} {
		for _, same := range []string{"%s", "%s:80", "%s:65535", "%s:0080", "%s.", "%s.:80"} {
			statuses[fmt.Sprintf(same, closed.name)] = closed.want
		}
		statuses[strings.ToUpper(closed.name)] = closed.want
		for _, trick := range []string{
			"%s:80:80", "%s::", "%s:80:", "%s::80", "%s:", "%s.:", "%s:x", "%s:+80", "%s:-1", "%s:8 0", "%s:65536",
			"%s:99999", "%s:000080", "%s:80@www.example.com", "%s@www.example.com", "user@%s", "user:password@%s",
			"user:password@%s:80", "@%s", "%s@", "%s,www.example.com", "www.example.com,%s", "%s, www.example.com",
			"%s;www.example.com", "%s www.example.com", "%s..", "..%s", ".%s", "%s...:80", "[%s]", "[%s]:80", "[%s",
			"%s]", "[::1]%s", "%s[::1]", "%s%%00", "%s%%2e", "%%61%s", "%s%%20", "%s/", "%s/x", "%s?", "%s#", "%s\\",
			"%s\\@www.example.com", "%s\x00", "%s\x7f", "%s\xff", "%s\u3002", "%s\u00a0", "\"%s\"", "'%s'", "(%s)",
			"<%s>", "*%s", "%s*", "!%s", "%s$", "%s&", "%s=", "%s~", "%s|", "%s^", "`%s", "{%s}",
		} {
			statuses[fmt.Sprintf(trick, closed.name)] = bad
		}
	}
	return statuses
}

func testHost(t *testing.T, envoy *proxy, host string, want int) {
	t.Helper()
	for form, a := range map[string]rawAnswer{
		"HTTP/1.1":                envoy.sendHTTP1(t, "GET /x HTTP/1.1", "host: "+host),
		"HTTP/1.1, absolute form": envoy.sendHTTP1(t, "GET http://"+host+"/x HTTP/1.1", "host: www.example.com"),
		"HTTP/2":                  envoy.sendHTTP2(t, ":path", "/x", ":authority", host),
	} {
		wantClosed(t, fmt.Sprintf("%s, %q", form, host), a)
		switch {
		case a.status == want:
		case want == http.StatusBadRequest && (a.status == 0 || a.status == http.StatusNotFound):
			// Envoy has closed the connection or the stream, or found no route.
		case strings.HasSuffix(form, "absolute form"):
			// Envoy's parser of URLs has read it, and has replaced it by the host that it found.
		default:
			t.Errorf("%s, %q: got %d, want %d; the application received %q", form, host, a.status, want, a.head)
		}
	}
}

// testTwoHosts sends requests with two hosts, none, or one in an unusual place. An upstream may read any of them.
func testTwoHosts(t *testing.T, envoy *proxy) {
	t.Helper()
	const one, other = "www.example.com", "admin.example.com"
	http2 := func(fields ...string) rawAnswer {
		return envoy.sendHTTP2(t, append([]string{":path", "/x"}, fields...)...)
	}
	for name, a := range map[string]rawAnswer{
		"HTTP/1.1, two":                 envoy.sendHTTP1(t, "GET /x HTTP/1.1", "host: "+one, "host: "+other),
		"HTTP/1.1, two, closed first":   envoy.sendHTTP1(t, "GET /x HTTP/1.1", "host: "+other, "host: "+one),
		"HTTP/1.1, none":                envoy.sendHTTP1(t, "GET /x HTTP/1.1", "x-y: z"),
		"HTTP/1.1, on two lines":        envoy.sendHTTP1(t, "GET /x HTTP/1.1", "host: "+one, " "+other),
		"HTTP/1.0, two colons":          envoy.sendHTTP1(t, "GET /x HTTP/1.0", "host: "+other+":80:80"),
		"HTTP/1.0, none":                envoy.sendHTTP1(t, "GET /x HTTP/1.0", "x-y: z"),
		"HTTP/2, :authority and host":   http2(":authority", one, "host", other),
		"HTTP/2, host alone":            http2("host", other),
		"HTTP/2, two host":              http2("host", one, "host", other),
		"HTTP/2, two :authority":        http2(":authority", one, ":authority", other),
		"HTTP/2, none":                  http2(),
		"HTTP/2, :authority is empty":   http2(":authority", "", "host", other),
		"HTTP/1.1, space around it":     envoy.sendHTTP1(t, "GET /x HTTP/1.1", "host: \t"+other+" \t"),
		"HTTP/1.1, absolute, host last": envoy.sendHTTP1(t, "GET http://"+other+"/x HTTP/1.1", "host: "+one),
	} {
		wantClosed(t, name, a)
	}
}

// wantClosed checks that no upstream would read a denied host in the request that the application received.
func wantClosed(t *testing.T, name string, a rawAnswer) {
	t.Helper()
	if a.head == "" {
		return
	}
	for does, read := range testenv.HostReaders() {
		host := read(a.host())
		if slices.Contains([]string{"admin.example.com", "busy.example.com", "2001:db8::1", "127.0.0.1"}, host) {
			t.Errorf("%s: the application received %q, which a reader that %s reads as %s", name, a.host(), does, host)
		}
	}
	if strings.Count(strings.ToLower(a.head), "\r\nhost:") != 1 {
		t.Errorf("%s: the application received %q, want one host", name, a.head)
	}
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/test/testenv"
)

// benchResult is what `extauthz-tools bench -o json` prints.
type benchResult struct {
	Sent, Answers, Allowed, Denied, Errors, Reconnects int
	Interrupted                                        bool
	Failures                                           []struct {
		Status, First string
		Count         int
	}
	Server *struct {
		PIDs []int
		CPU  float64 `json:"cpu_per_request"`
	}
	Redis *struct {
		Commands float64 `json:"commands_per_request"`
		Scripts  float64 `json:"script_calls_per_request"`
		CPU      float64 `json:"cpu_per_request"`
	}
}

// bench runs `extauthz-tools bench` with these flags for some requests, and returns its result and exit code.
func bench(t *testing.T, flags ...string) (r benchResult, code int) {
	t.Helper()
	flags = append([]string{"bench", "-o", "json", "--timeout", "1m", "--duration", "1h"}, flags...)
	cmd := tools(t, flags...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("bench %v: %v\n%s%s", flags, err, out, &stderr)
	}
	return r, cmd.ProcessState.ExitCode()
}

// TestBench measures the service over each connection that it offers, with the same rules in memory and in Redis.
func TestBench(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, "domain: shop\nauthz: {anonymous: allow, limits: [{actions: [{request_headers: {header: "+
		"x-user, key: user}}]}]}\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 3, "+
		"algorithm: fixed_window}}, {key: plan, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n")
	redis := testenv.Redis(t)
	certificates := newCertificates(t)
	memory, shared := startService(t, "RUNTIME_ROOT="+root), startService(t, "RUNTIME_ROOT="+root, "REDIS_URL="+redis.Addr)
	socket := filepath.Join(t.TempDir(), "s")
	startService(t, "RUNTIME_ROOT="+root, "GRPC_UDS="+socket)
	secured := certificates.service(t, "RUNTIME_ROOT="+root)
	limit := []string{"--domain", "shop", "--requests", "1000", "--descriptor", "user={key}"}
	check := []string{"--service", "ext_authz", "--requests", "1000", "--header", "x-user: {key}"}
	address := func(s *service) []string { return []string{"--address", testenv.Loopback(s.grpcPort)} }

	for name, c := range map[string]struct {
		flags  []string
		denied func(n int) bool
	}{
		"memory": {slices.Concat(address(memory), limit), nil},
		"three descriptors": {slices.Concat(address(memory), limit, []string{"--descriptor", "plan=x", "--descriptor",
			"plan=y"}), nil},
		"one key": {slices.Concat(address(memory), limit, []string{"--keys", "one"}),
			func(n int) bool { return n > 990 }},
		"zipf, open loop": {slices.Concat(address(memory), limit, []string{"--keys", "zipf:1000000", "--rate", "5000"}),
			func(n int) bool { return n > 0 }},
		"Check": {slices.Concat(address(memory), check), nil},
		"Check, with a file": {slices.Concat(address(memory), check, []string{"--header", "@" + benchHeader(t)}),
			nil},
		"Redis":         {slices.Concat(address(shared), limit, []string{"--redis", redis.Addr}), nil},
		"a Unix socket": {append([]string{"--address", "unix:" + socket}, limit...), nil},
		"TLS": {slices.Concat(address(secured), limit, []string{"--tls", "--tls-ca", certificates.file("ca.crt"),
			"--tls-cert", certificates.file("envoy.crt"), "--tls-key", certificates.file("envoy.key")}), nil},
	} {
		clients := []string{"envoy"}
		if name == "memory" {
			clients = []string{"envoy", "traced", "deadline", "indexed"}
		}
		for _, client := range clients {
			t.Run(name+", "+client, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--client", client}, c.flags...)
				r, code := bench(t, flags...)
				if code != 0 || r.Sent != 1000 || r.Answers != 1000 || r.Errors != 0 || r.Reconnects != 0 {
					t.Errorf("exit code %d, %+v, want 1000 answers", code, r)
				}
				if c.denied != nil && !c.denied(r.Denied) {
					t.Errorf("%d denied", r.Denied)
				}
				if r.Server == nil || len(r.Server.PIDs) != 1 || r.Server.CPU <= 0 {
					t.Errorf("the cost of the server: %+v", r.Server)
				}
				if known := r.Redis != nil; known != strings.HasPrefix(name, "Redis") {
					t.Errorf("the cost of Redis: %+v", r.Redis)
				}
				if r.Redis != nil && (r.Redis.Scripts <= 0 || r.Redis.Commands <= r.Redis.Scripts || r.Redis.CPU <= 0) {
					t.Errorf("the cost of Redis: %+v", r.Redis)
				}
			})
		}
	}
}

// benchHeader writes a file with a header.
func benchHeader(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("x-api-key: secret\nx-other: {key}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// rateLimitServer is a service that is not extauthz.
type rateLimitServer struct {
	rlsv3.UnimplementedRateLimitServiceServer
	calls chan int // each call takes a number and puts the next one back
	fail  func(call int) error
}

func (s *rateLimitServer) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	n := <-s.calls
	s.calls <- n + 1
	if err := s.fail(n); err != nil {
		return nil, err
	}
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// serveRateLimit runs a server until the test ends, and returns the flags for it.
func serveRateLimit(t *testing.T, fail func(call int) error, options ...grpc.ServerOption) []string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &rateLimitServer{calls: make(chan int, 1), fail: fail}
	service.calls <- 0
	g := grpc.NewServer(options...)
	rlsv3.RegisterRateLimitServiceServer(g, service)
	go func() { _ = g.Serve(listener) }() // returns after Stop
	t.Cleanup(g.Stop)
	return []string{"--address", listener.Addr().String(), "--domain", "d", "--descriptor", "k={key}"}
}

// TestBenchOfOthers checks that errors of a service are counted by their status, and that GOAWAY loses no request.
func TestBenchOfOthers(t *testing.T) {
	t.Parallel()
	flags := serveRateLimit(t, func(call int) error {
		if call%10 == 5 {
			return status.Error(codes.ResourceExhausted, "too \x1b[31mmuch")
		}
		return nil
	})
	r, code := bench(t, append(flags, "--requests", "1000")...)
	if code != 1 || r.Answers != 900 || r.Errors != 100 || len(r.Failures) != 1 ||
		r.Failures[0].Status != "ResourceExhausted" {
		t.Errorf("exit code %d, %+v, want 900 answers and 100 errors", code, r)
	}

	// The server sends GOAWAY after some milliseconds of each connection, and answers what it has accepted.
	flags = serveRateLimit(t, func(int) error { return nil },
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 50 * time.Millisecond}))
	r, code = bench(t, append(flags, "--requests", "3000", "--rate", "3000")...)
	if code != 0 || r.Answers != 3000 || r.Errors != 0 || r.Reconnects == 0 {
		t.Errorf("exit code %d, %+v, want 3000 answers over several connections", code, r)
	}
}

// TestBenchInterrupted checks that Ctrl-C prints the results so far.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	flags := serveRateLimit(t, func(call int) error {
		if call == 100 {
			close(seen)
		}
		return nil
	})
	cmd := tools(t, append([]string{"bench", "--duration", "1h", "--timeout", "1m"}, flags...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-seen
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), " s, interrupted, 64 requests in flight") {
		t.Errorf("%v, want the results so far in\n%s", err, &out)
	}
}

// TestBenchWarns checks the warnings if a measurement decides no limits.
func TestBenchWarns(t *testing.T) {
	t.Parallel()
	const rules = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 3}}]\n"
	root, _ := rulesDirectory(t, rules)
	withoutPolicy := startService(t, "RUNTIME_ROOT="+root)
	root, _ = rulesDirectory(t, rules+"authz: {credentials: [{api_key: {header: x-api-key}}]}\n")
	withPolicy := startService(t, append(keysInFile(t).environment, "RUNTIME_ROOT="+root)...)
	for name, c := range map[string]struct {
		service *service
		flags   []string
		want    string
	}{
		"another domain":   {withPolicy, []string{"--domain", "other", "--descriptor", "user=x"}, "names no limit"},
		"another key":      {withPolicy, []string{"--domain", "shop", "--descriptor", "plan=x"}, "names no limit"},
		"a limit":          {withPolicy, []string{"--domain", "shop", "--descriptor", "user=x"}, ""},
		"no key":           {withPolicy, []string{"--service", "ext_authz"}, "refused with 401"},
		"no policy at all": {withoutPolicy, []string{"--service", "ext_authz"}, "refused with "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"bench", "--requests", "10", "--timeout", "1m", "--address",
				testenv.Loopback(c.service.grpcPort)}, c.flags...)
			out, err := tools(t, flags...).CombinedOutput()
			warned := strings.Contains(string(out), "\nwarning ")
			if err != nil || warned != (c.want != "") || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want a warning with %q in\n%s", err, c.want, out)
			}
		})
	}
}

// TestBenchRefused checks the message when there is nothing to measure.
func TestBenchRefused(t *testing.T) {
	t.Parallel()
	listen := func(handle func(net.Conn)) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var accepted sync.WaitGroup
		t.Cleanup(func() {
			_ = listener.Close()
			accepted.Wait()
		})
		accepted.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close() // keeps a connection open that handle leaves open
				handle(conn)
			}
		})
		return listener.Addr().String()
	}
	free := testenv.Loopback(testenv.FreePort(t))
	plaintext := serveRateLimit(t, func(int) error { return nil })[1]
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"wrong address": {[]string{"--address", free}, "connection refused: check the address"},
		"hangs": {[]string{"--address", listen(func(net.Conn) {}), "--timeout", "200ms"},
			"no HTTP/2 settings within 200ms"},
		"closes": {[]string{"--address", listen(func(c net.Conn) { _ = c.Close() })}, "does not answer: "},
		"no TLS": {[]string{"--address", plaintext, "--tls"}, "first record does not look like a TLS handshake"},
		"another service": {serveRateLimit(t, func(int) error { return status.Error(codes.Unimplemented, "no such method") }),
			`has no answer to the first request: Unimplemented: "no such method"`},
		"a remote address": {[]string{"--address", "192.0.2.1:8081"}, "--allow-remote permits it"},
		"a remote Redis": {[]string{"--address", plaintext, "--redis", "redis://:secret@192.0.2.1"},
			"--allow-remote permits it"},
		"a wrong URL of Redis": {[]string{"--address", plaintext, "--redis", "redis://:secret@127.0.0.1:1%zz"},
			"the value is not shown"},
		"another Redis": {[]string{"--address", plaintext, "--redis", free}, "INFO: dial tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"bench", "--domain", "d", "--descriptor", "k=v", "--timeout", "1m"}, c.flags...)
			out, err := tools(t, flags...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) || bytes.Count(out, []byte("\n")) > 2 ||
				strings.Contains(string(out), "secret") {
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			}
		})
	}
}

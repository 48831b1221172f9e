package main

import (
	"bytes"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/test/testenv"
)

// serveHealth runs a gRPC server with only this health service on a listener, until the test ends.
func serveHealth(t *testing.T, listener net.Listener, register func(*grpc.Server)) {
	t.Helper()
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }() // a server that is stopped has nothing to say
	t.Cleanup(server.Stop)
}

// setHealth registers the health of all services of extauthz.
func setHealth(s *grpc.Server, status grpc_health_v1.HealthCheckResponse_ServingStatus) *grpchealth.Server {
	h := grpchealth.NewServer()
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService",
		"envoy.service.auth.v3.Authorization"} {
		h.SetServingStatus(name, status)
	}
	grpc_health_v1.RegisterHealthServer(s, h)
	return h
}

// listenOn listens on TCP or on a Unix socket. For TCP it also returns the port.
func listenOn(t *testing.T, network, address string) (listener net.Listener, port string) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // its server may have done so
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
		port = strconv.Itoa(tcp.Port)
	}
	return listener, port
}

// TestHealth checks servers in every state at the addresses of the settings.
func TestHealth(t *testing.T) {
	socket, serving := filepath.Join(t.TempDir(), "grpc.sock"),
		func(s *grpc.Server) { setHealth(s, grpc_health_v1.HealthCheckResponse_SERVING) }
	onSocket, _ := listenOn(t, "unix", socket)
	serveHealth(t, onSocket, serving)
	healthy, port := listenOn(t, "tcp", "127.0.0.1:0")
	serveHealth(t, healthy, serving)
	starting, startingPort := listenOn(t, "tcp", "127.0.0.1:0")
	serveHealth(t, starting, func(s *grpc.Server) { setHealth(s, grpc_health_v1.HealthCheckResponse_NOT_SERVING) })
	draining, drainingPort := listenOn(t, "tcp", "127.0.0.1:0")
	serveHealth(t, draining, func(s *grpc.Server) { setHealth(s, grpc_health_v1.HealthCheckResponse_SERVING).Shutdown() })
	other, otherPort := listenOn(t, "tcp", "127.0.0.1:0")
	serveHealth(t, other, func(*grpc.Server) {})
	_, silentPort := listenOn(t, "tcp", "127.0.0.1:0") // accepts connections and never answers
	freePort := strconv.Itoa(testenv.FreePort(t))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/starting":
			http.Error(w, "not ready\nat all", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(web.Close)

	for name, c := range map[string]struct {
		env   variables
		flags string
		code  int
		want  string
	}{
		"healthy":        {variables{"GRPC_PORT": port}, "", 0, "healthy\n"},
		"by any address": {variables{"GRPC_PORT": port, "GRPC_HOST": "0.0.0.0"}, "", 0, "healthy\n"},
		"by name":        {variables{"GRPC_PORT": port, "GRPC_HOST": "localhost"}, "", 0, "healthy\n"},
		"one service": {variables{"GRPC_PORT": port}, "--service=envoy.service.auth.v3.Authorization", 0,
			"healthy\n"},
		"a Unix socket": {variables{"GRPC_PORT": freePort, "GRPC_UDS": socket}, "", 0, "healthy\n"},
		"starting": {variables{"GRPC_PORT": startingPort}, "", 1, `127.0.0.1:` + startingPort +
			` reports NOT_SERVING for service "": the service is draining or has no rules yet; see its log`},
		"draining": {variables{"GRPC_PORT": drainingPort}, "--service ratelimit", 1,
			`reports NOT_SERVING for service "ratelimit"`},
		"unknown service": {variables{"GRPC_PORT": port}, "--service auth", 1,
			`has no service "auth": want one of ["" "ratelimit" "envoy.service.ratelimit.v3.RateLimitService" ` +
				`"envoy.service.auth.v3.Authorization"]`},
		"wrong port": {variables{"GRPC_PORT": freePort}, "", 1, "127.0.0.1:" + freePort +
			" does not answer: "},
		"what to do": {variables{"GRPC_PORT": freePort}, "", 1,
			"connection refused\": check that the service runs with the same GRPC_HOST and GRPC_PORT\n"},
		"no such socket": {variables{"GRPC_UDS": socket + "2"}, "", 1,
			"no such file or directory\": check that the service runs with the same GRPC_UDS\n"},
		"something else": {variables{"GRPC_PORT": otherPort}, "", 1,
			"unknown service grpc.health.v1.Health: check that extauthz listens there"},
		"silence": {variables{"GRPC_PORT": silentPort}, "--timeout 50ms", 1, "127.0.0.1:" + silentPort +
			" has not answered within 50ms"},
		"mistaken settings":  {variables{"GRPC_PORT": "grpc"}, "", 1, `GRPC_PORT: want a port, 0 to 65535`},
		"HTTP":               {nil, "--http " + web.URL, 0, "healthy\n"},
		"HTTP needs no GRPC": {variables{"GRPC_PORT": "grpc"}, "--http " + web.URL, 0, "healthy\n"},
		"HTTP, starting": {nil, "--http " + web.URL + "/starting", 1,
			`/starting: 500 Internal Server Error "not ready", want 200`},
		"HTTP, elsewhere": {nil, "--http " + web.URL + "/moved", 1, "/moved: 302 Found "},
		"HTTP, wrong port": {nil, "--http http://127.0.0.1:" + freePort, 1,
			"connection refused: check that it runs and that the URL is right"},
		"HTTP, silence": {nil, "--timeout 50ms --http http://127.0.0.1:" + silentPort, 1, "no answer within 50ms"},
	} {
		t.Run(name, func(t *testing.T) {
			env := variables{"GRPC_HOST": "127.0.0.1"}
			maps.Copy(env, c.env)
			var out bytes.Buffer
			code := run(t, env, "health --timeout=1m "+c.flags, "", &out, &out) // the last one of a flag counts
			if code != c.code || !strings.Contains(out.String(), c.want) || strings.Count(out.String(), "\n") > 3 {
				t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, c.want, &out)
			}
		})
	}
}

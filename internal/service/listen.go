package service

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/settings"
)

// listeners are the open ports of the service.
type listeners struct {
	// guarded are those that the operator can open to other machines, by their names in metrics: grpc, http, debug and,
	// with USE_PROMETHEUS, prometheus. Only that of gRPC can have TLS.
	guarded map[string]*guard.Listener
	pprof   net.Listener // nil unless profiles have a separate port
	tls     *grpcTLS     // of gRPC; nil without TLS
}

// listen opens all listeners, so that a port in use is found before anything is served. An error names the setting, the
// mistake and the remedy. The listeners that are open by then are returned with the error.
func listen(s *settings.Settings, t *grpcTLS, b bounds) (l listeners, err error) {
	l = listeners{guarded: map[string]*guard.Listener{}, tls: t}
	listenGRPC := tcpAddress{"GRPC_HOST", s.Listeners.GRPCHost, "GRPC_PORT", s.Listeners.GRPCPort}.listen
	if s.Listeners.GRPCUDS != "" {
		listenGRPC = func() (net.Listener, error) { return listenUnix(s.Listeners.GRPCUDS) }
	}
	type port struct {
		name   string
		listen func() (net.Listener, error)
	}
	ports := []port{
		{"grpc", listenGRPC},
		{"http", tcpAddress{"HOST", s.Listeners.Host, "PORT", s.Listeners.Port}.listen},
		{"debug", tcpAddress{"DEBUG_HOST", s.Listeners.DebugHost, "DEBUG_PORT", s.Listeners.DebugPort}.listen},
	}
	if address := s.Telemetry.PrometheusAddr; s.Telemetry.UsePrometheus {
		ports = append(ports, port{"prometheus",
			tcpAddress{"PROMETHEUS_ADDR", address.Host, "PROMETHEUS_ADDR", address.Port}.listen})
	}
	for _, port := range ports {
		listener, err := port.listen()
		if err != nil {
			return l, err
		}
		if port.name == "grpc" && t != nil {
			listener = &tlsListener{listener, t, t.config()}
		}
		l.guarded[port.name] = guard.New(listener, b[port.name])
	}
	if s.Listeners.Pprof && reachable(l.guarded["debug"]) {
		l.pprof, err = tcpAddress{"DEBUG_PPROF", "127.0.0.1", "DEBUG_PPROF_PORT", s.Listeners.PprofPort}.listen()
	}
	return l, err
}

// plaintext returns the names of the listeners that other machines can reach and that have no TLS.
func (l listeners) plaintext() map[string]bool {
	open := map[string]bool{}
	for name, one := range l.guarded {
		open[name] = reachable(one) && (name != "grpc" || l.tls == nil)
	}
	return open
}

// address returns the address of a listener of guarded.
func (l listeners) address(name string) string { return l.guarded[name].Addr().String() }

func (l listeners) close() {
	for _, one := range l.guarded {
		_ = one.Close() // its server may have closed it already
	}
	if l.pprof != nil {
		_ = l.pprof.Close() // as above
	}
}

// tcpAddress is an address to listen on, and the settings that it comes from.
type tcpAddress struct {
	hostSetting, host string
	portSetting       string
	port              uint16
}

func (a tcpAddress) listen() (net.Listener, error) {
	address := net.JoinHostPort(a.host, strconv.Itoa(int(a.port)))
	l, err := net.Listen("tcp", address)
	const want = "want an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
	var unknown *net.DNSError
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d of %s is in use: stop what listens there, or set %s to another port", a.port, a.host,
			a.portSetting)
	case errors.As(err, &unknown): // err would show the host, which may be a misplaced secret
		return nil, fmt.Errorf("listen for %s: its host is not an address or a name with an address: %s", a.hostSetting, want)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("listen for %s: its host is not an address of this machine (%w): %s", a.hostSetting, err, want)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: no permission to listen on port %d: want 1024 or more", a.portSetting, a.port)
	}
	return nil, fmt.Errorf("listen for %s: %w: set an address and a port that are free", a.portSetting, err)
}

// maxSocketPath is the longest path of a Unix socket on Linux; elsewhere it is a few bytes less.
const maxSocketPath = 107

// listenUnix listens on a socket that all users can open, as Envoy may run as another. It replaces one left behind.
func listenUnix(path string) (net.Listener, error) {
	fail := func(format string, args ...any) (net.Listener, error) {
		return nil, fmt.Errorf("GRPC_UDS=%s: %w", path, fmt.Errorf(format, args...))
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("GRPC_UDS: a path of %d bytes is too long for a socket: choose one of at most %d", len(path),
			maxSocketPath)
	}
	if info, err := os.Stat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return fail("the file is not a socket: delete it, or set GRPC_UDS to another path")
		}
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close() // it only shows that a process listens
			return fail("the socket is in use: stop what listens there, or set GRPC_UDS to another path")
		}
		if err := os.Remove(path); err != nil {
			return fail("cannot remove the socket of an earlier process: %w: "+
				"delete it, or let this user (%d) write to the directory", reason(err), os.Getuid())
		}
	}
	l, err := net.Listen("unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("the directory %s does not exist: create it, or mount it", filepath.Dir(path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fail("no permission to create a socket in %s: let this user (%d) write to the directory", filepath.Dir(path),
			os.Getuid())
	case err != nil:
		return fail("listen: %w: set GRPC_UDS to a path on a local file system", reason(err))
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // permissions of the directory protect the socket
		_ = l.Close() // the first error matters
		return fail("cannot let other users open the socket: %w: set GRPC_UDS to a path on a local file system", reason(err))
	}
	return l, nil
}

// reason returns the system error in err without its operation and path, because the message around it names them.
func reason(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}

// onLoopback returns settings for the sample: they listen on loopback only, and send no statistics.
func onLoopback(s *settings.Settings) *settings.Settings {
	local := *s
	local.Listeners.Host, local.Listeners.GRPCHost, local.Listeners.DebugHost = "127.0.0.1", "127.0.0.1", "127.0.0.1"
	local.Telemetry.UseStatsd = false
	return &local
}

// checkPlaintext warns about listeners that other machines can reach, unless the operator has allowed them: their
// clients can charge any bucket. With STRICT_ENVIRONMENT it returns an error instead, except for the debug listener,
// which decides nothing and which Prometheus reaches from another machine.
func checkPlaintext(s *settings.Settings, l listeners, log *slog.Logger) error {
	allowed, plaintext := s.Listeners.Plaintext == "allow", l.plaintext()
	var open []string
	if plaintext["grpc"] && !allowed {
		open = append(open, "GRPC_HOST="+s.Listeners.GRPCHost)
		log.Warn("gRPC has no TLS and other machines can reach it: they can charge any bucket; "+
			"set GRPC_SERVER_USE_TLS=true and GRPC_CLIENT_TLS_CACERT, or GRPC_UDS or GRPC_HOST=127.0.0.1 beside Envoy, "+
			"or GRPC_PLAINTEXT=allow where a network policy or a mesh protects it", "host", s.Listeners.GRPCHost)
	}
	if l.tls != nil && l.tls.clients == nil && reachable(l.guarded["grpc"]) && !allowed {
		log.Warn("gRPC verifies no clients and other machines can reach it: they can charge any bucket; "+
			"set GRPC_CLIENT_TLS_CACERT, or GRPC_PLAINTEXT=allow where a network policy or a mesh protects it",
			"host", s.Listeners.GRPCHost)
	}
	if plaintext["http"] && !allowed {
		open = append(open, "HOST="+s.Listeners.Host)
		log.Warn("HTTP has no TLS and other machines can reach it: they can charge any bucket by /json or /check; "+
			"set HOST=127.0.0.1, or GRPC_PLAINTEXT=allow where a network policy or a mesh protects it", "host", s.Listeners.Host)
	}
	if plaintext["debug"] {
		log.Warn("other machines can reach the debug port, which shows rules and metrics", "host", s.Listeners.DebugHost)
	}
	if open == nil || !s.Process.StrictEnvironment {
		return nil
	}
	return fmt.Errorf("%s: other machines can reach a listener without TLS, which STRICT_ENVIRONMENT=true refuses: "+
		"set GRPC_SERVER_USE_TLS=true, or GRPC_UDS or GRPC_HOST=127.0.0.1 beside Envoy, and HOST=127.0.0.1; "+
		"or set GRPC_PLAINTEXT=allow where a network policy or a mesh protects the ports", strings.Join(open, " and "))
}

// reachable reports whether other machines can reach a listener: it is neither on loopback nor a Unix socket.
func reachable(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

const (
	// Connections may take an eighth of the memory limit, and requests in flight a quarter.
	connectionShare, requestShare = 8, 4
	// connectionSize is the memory of a connection without requests.
	connectionSize = 48 << 10
	// minConnections is for a small container, maxConnections for one without a limit.
	minConnections, maxConnections = 500, 10_000
	// debugConnections is enough for Prometheus and operators. Each connection may get a response of megabytes.
	debugConnections = 32
	// unlimited stands for the memory limit if there is none.
	unlimited = 4 << 30
)

// bounds are the bounds of each port, by its name in metrics.
type bounds map[string]guard.Config

func portBounds(s *settings.Settings, memory int64) bounds {
	if memory == math.MaxInt64 {
		memory = unlimited
	}
	connections := int(min(maxConnections, max(minConnections, memory/connectionShare/connectionSize)))
	requests := memory / requestShare
	pages := guard.Config{Connections: debugConnections, Bytes: requests / 4} // the requests have no body
	return bounds{
		"grpc":  {Connections: cmp.Or(s.Listeners.MaxConnections, connections), Bytes: requests / 2, Metered: true},
		"http":  {Connections: cmp.Or(s.Listeners.HTTPMaxConnections, connections/2), Bytes: requests / 4},
		"debug": pages, "prometheus": pages,
	}
}

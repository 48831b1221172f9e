package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

type listeners struct{ grpc, http, debug net.Listener }

// listen opens all listeners, so that a port in use is found before anything is served.
func listen(s *Settings) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if s.GRPCUDS != "" {
		l.grpc, err = listenUnix(s.GRPCUDS)
	} else {
		l.grpc, err = listenTCP("GRPC_PORT", s.GRPCHost, s.GRPCPort)
	}
	if err != nil {
		return l, err
	}
	if l.http, err = listenTCP("PORT", s.Host, s.Port); err != nil {
		return l, err
	}
	l.debug, err = listenTCP("DEBUG_PORT", s.DebugHost, s.DebugPort)
	return l, err
}

func (l listeners) close() {
	for _, one := range []net.Listener{l.grpc, l.http, l.debug} {
		if one != nil {
			_ = one.Close() // a server that ran has closed it already
		}
	}
}

func listenTCP(setting, host string, port uint16) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of %s is in use: stop what listens there, or set %s to another port", port, host, setting)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok { // which would show the host, and that may be a misplaced secret
		return nil, fmt.Errorf("listen for %s: its host is no address, and no address has this name", setting)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", setting, err)
	}
	return l, nil
}

// listenUnix makes a socket that Envoy in another container, under another user, can open too. A socket that a process which
// is gone has left behind is removed.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Stat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("GRPC_UDS=%s: a file is there that is not a socket: delete it, or set GRPC_UDS to another path", path)
		}
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close() // it was only opened to see whether someone listens
			return nil, fmt.Errorf("GRPC_UDS=%s is in use: stop what listens there, or choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("GRPC_UDS=%s: remove the socket left behind: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("GRPC_UDS=%s: the directory %s does not exist: create it, or mount it", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("GRPC_UDS: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the directory says who may reach it, as with any shared socket
		_ = l.Close() // the error that matters is the first
		return nil, fmt.Errorf("GRPC_UDS: %w", err)
	}
	return l, nil
}

// serveOnLoopback keeps the sample, which nobody has configured, from the network.
func (s *Settings) serveOnLoopback() {
	s.Host, s.GRPCHost, s.DebugHost = "127.0.0.1", "127.0.0.1", "127.0.0.1"
}

// warnPlaintext says that anyone who can reach the ports can ask, and charge, any bucket.
func warnPlaintext(s *Settings, sample bool, log *slog.Logger) {
	if sample {
		return
	}
	if s.GRPCUDS == "" && !isLoopback(s.GRPCHost) {
		log.Warn("gRPC is plaintext and reachable from other machines: whoever reaches it can charge any bucket; prefer GRPC_UDS or GRPC_HOST=127.0.0.1 beside Envoy, or a network policy", "host", s.GRPCHost)
	}
	if !isLoopback(s.Host) {
		log.Warn("HTTP is plaintext and reachable from other machines: whoever reaches /json or /check can charge any bucket; prefer HOST=127.0.0.1, or a network policy", "host", s.Host)
	}
	if !isLoopback(s.DebugHost) {
		log.Warn("the debug port is reachable from other machines and shows rules and profiles", "host", s.DebugHost)
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

package testenv

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RedisTLS returns the options of a Redis that also serves TLS, on a port of its own. Its certificate is for these
// names and 127.0.0.1. Replicas, other nodes of a cluster and sentinels use TLS as well.
func RedisTLS(t testing.TB, a *Authority, name string, more ...string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "cert.key")
	a.Write(t, ca)
	WriteCertificate(t, a.Issue(t, name, time.Hour, more...), cert, key)
	return []string{
		"--tls-port", FreePortArg, "--tls-replication", "yes", "--tls-auth-clients", "no",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
	}
}

// TLSAddr returns the address at which the server serves TLS. The host is a name of it.
func (r *RedisServer) TLSAddr(host string) string {
	return net.JoinHostPort(host, r.Option("--tls-port"))
}

// peerPort returns the port for other servers: that of TLS if there is one.
func (r *RedisServer) peerPort() string {
	if port := r.Option("--tls-port"); port != "" {
		return port
	}
	_, port := r.hostPort()
	return port
}

// tlsOptions returns the options about TLS of a command line, but not the port.
func tlsOptions(args []string) (options []string) {
	for i := 0; i+1 < len(args); i += 2 {
		if strings.HasPrefix(args[i], "--tls-") && args[i] != "--tls-port" {
			options = append(options, args[i], args[i+1])
		}
	}
	return options
}

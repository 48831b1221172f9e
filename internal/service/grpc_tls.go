package service

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/extauthz/extauthz/internal/certs"
)

// grpcTLS is the TLS of the gRPC listener. Each handshake reads the files of its certificates again.
type grpcTLS struct {
	pair    *certs.Pair
	clients *certs.Authorities // nil if clients need no certificate
	name    string             // which certificates of clients must have; "" for any
	log     *slog.Logger
	counts  *prometheus.CounterVec
	logged  logLimiter
}

// openGRPCTLS reads the files, if the listener has TLS.
func (p *process) openGRPCTLS() (err error) {
	s, files := p.Settings, p.files
	if !s.TLS.Use {
		return nil
	}
	t := &grpcTLS{name: s.TLS.ClientSAN, log: p.log}
	if t.pair, err = certs.ReadPair(s.TLS.Cert, s.TLS.Key, files.report("grpc_server")); err != nil {
		return fmt.Errorf("GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: %w", err)
	}
	files.files["grpc_server"] = t.pair
	if s.TLS.ClientCA != "" {
		if t.clients, err = certs.ReadAuthorities(s.TLS.ClientCA, files.report("grpc_client_ca")); err != nil {
			return fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %w", err)
		}
		files.files["grpc_client_ca"] = t.clients
	}
	t.counts = promauto.With(p.registry).NewCounterVec(prometheus.CounterOpts{
		Name: "extauthz_tls_handshakes_total", Help: "TLS handshakes of the gRPC listener by result; ok for successful ones.",
	}, []string{"result"})
	for _, result := range handshakeResults {
		t.counts.WithLabelValues(result)
	}
	p.tls = t
	return nil
}

// tlsListener has TLS. The first Read or Write of a connection makes the handshake, so Accept does not wait for
// clients. The deadline that the server sets bounds the handshake, and the guard counts the connection from Accept on.
type tlsListener struct {
	net.Listener
	tls    *grpcTLS
	config *tls.Config
}

func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	bounded := &handshakeConn{Conn: c, left: maxHandshake}
	return &tlsConn{Conn: tls.Server(bounded, l.config), bounded: bounded, tls: l.tls}, nil
}

// config returns the configuration of all connections, which asks for one of each connection in its handshake.
func (t *grpcTLS) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		// Sessions are not resumed, because a resumed one would not be verified by the current authorities.
		SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := t.config()
			cfg.GetConfigForClient = nil
			cfg.Certificates = []tls.Certificate{*t.pair.Current()}
			if t.clients != nil {
				cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, t.clients.Pool()
			}
			cfg.VerifyConnection = t.verify
			return cfg, nil
		},
	}
}

// The reasons for which this service refuses a client whose certificate chain is valid.
var (
	errNoH2       = errors.New("the client does not offer HTTP/2 (ALPN h2)")
	errClientName = errors.New("the certificate of the client does not have the name GRPC_CLIENT_TLS_SAN")
)

// verify checks what crypto/tls does not: the protocol, which gRPC demands, and the name of the client.
func (t *grpcTLS) verify(c tls.ConnectionState) error {
	if c.NegotiatedProtocol != "h2" {
		return errNoH2
	}
	if t.name != "" && !hasName(c.PeerCertificates[0], t.name) {
		return errClientName
	}
	return nil
}

// hasName reports whether a certificate is for a URI such as a SPIFFE ID, a DNS name or an IP address.
func hasName(cert *x509.Certificate, name string) bool {
	if strings.Contains(name, "://") {
		return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return uri.String() == name })
	}
	return cert.VerifyHostname(name) == nil
}

// tlsConn is a connection with TLS.
type tlsConn struct {
	*tls.Conn
	bounded *handshakeConn
	tls     *grpcTLS
	once    sync.Once
}

func (c *tlsConn) Read(p []byte) (int, error) {
	c.once.Do(c.handshake)
	return c.Conn.Read(p)
}

func (c *tlsConn) Write(p []byte) (int, error) {
	c.once.Do(c.handshake)
	return c.Conn.Write(p)
}

// handshake makes the handshake, and counts its result. After an error, tls.Conn returns it from each Read and Write.
func (c *tlsConn) handshake() {
	err := c.handshakeApart() // until the deadline that the server has set
	c.bounded.left = -1
	result := handshakeResult(err)
	c.tls.counts.WithLabelValues(result).Inc()
	if result != handshakeOK && result != handshakeClosed && c.tls.logged.allow(result) {
		c.tls.log.Warn("a TLS handshake with a client of gRPC failed (logged once a minute for each reason)",
			"reason", result, "client", c.RemoteAddr().String(), "error", err)
	}
}

// handshakeApart makes the handshake in another goroutine: its large stack must not stay with an idle connection.
func (c *tlsConn) handshakeApart() (err error) {
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		err = c.Conn.Handshake()
	}()
	<-done
	if panicked != nil {
		panic(panicked) // where the server expects it
	}
	return err
}

// maxHandshake bounds what a client sends before the handshake ends. crypto/tls takes 256 kB from any client.
const maxHandshake = 64 << 10

var errLargeHandshake = errors.New("the client sends more than 64 KiB in its handshake")

// handshakeConn bounds the bytes that are read during a handshake. left is negative after it.
type handshakeConn struct {
	net.Conn
	left int
}

func (c *handshakeConn) Read(p []byte) (int, error) {
	if c.left < 0 {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, errLargeHandshake
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// The results of handshakes.
const (
	handshakeOK          = "ok"
	handshakeClosed      = "closed" // perhaps by a probe of the port
	handshakeTimeout     = "timeout"
	handshakeNotTLS      = "not_tls" // plaintext
	handshakeRefused     = "refused_by_client"
	handshakeCertificate = "client_certificate" // missing or not valid
	handshakeOther       = "other"              // such as no common version or no HTTP/2
)

var handshakeResults = []string{handshakeOK, handshakeClosed, handshakeTimeout, handshakeNotTLS, handshakeRefused,
	handshakeCertificate, handshakeOther}

// handshakeResult returns the result of a handshake, for the metric and the log.
func handshakeResult(err error) string {
	network, isNetwork := errors.AsType[*net.OpError](err)
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case err == nil:
		return handshakeOK
	case isNetwork && network.Timeout():
		return handshakeTimeout
	case isNetwork && network.Op == "remote error": // an alert (crypto/tls)
		return handshakeRefused
	case isNetwork, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return handshakeClosed
	case notTLS:
		return handshakeNotTLS
	case strings.Contains(err.Error(), "certificate"):
		return handshakeCertificate
	}
	return handshakeOther
}

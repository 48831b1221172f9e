package certs

import (
	"crypto/tls"
	"crypto/x509"
)

// ClientFiles are the files and checks of a TLS client.
type ClientFiles struct {
	// CA has the authorities that the server is trusted by; "" means those of the system.
	CA string
	// Cert and Key have the certificate that the client shows, and its key; "" means none.
	Cert, Key string
	// ServerName is the name that the server's certificate must have; "" means the host that the client connects to.
	ServerName string
	// AnyName accepts every name in the certificate. Its chain and its validity are still verified.
	AnyName bool
	// PairChanged is that of ReadPair for Cert and Key, CAChanged that of ReadAuthorities. Both may be nil.
	PairChanged, CAChanged func(error)
}

// Client has the TLS configuration of a client. Use NewClient.
type Client struct {
	Pair        *Pair        // nil without a certificate
	Authorities *Authorities // nil for those of the system

	files ClientFiles
}

// NewClient reads the files for the first time.
func NewClient(f ClientFiles) (c *Client, err error) {
	c = &Client{files: f}
	if f.Cert != "" || f.Key != "" {
		if c.Pair, err = ReadPair(f.Cert, f.Key, f.PairChanged); err != nil {
			return nil, err
		}
	}
	if f.CA != "" {
		if c.Authorities, err = ReadAuthorities(f.CA, f.CAChanged); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Config returns the configuration for one connection, with the files as they are now.
func (c *Client) Config() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.files.ServerName}
	if c.Pair != nil {
		cfg.GetClientCertificate = c.Pair.ForServer
	}
	if c.Authorities != nil {
		cfg.RootCAs = c.Authorities.Pool()
	}
	if c.files.AnyName {
		acceptAnyName(cfg)
	}
	return cfg
}

// acceptAnyName verifies the certificate of the server as crypto/tls does, but not its name.
func acceptAnyName(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(c tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, cert := range c.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		if _, err := c.PeerCertificates[0].Verify(o); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: c.PeerCertificates, Err: err}
		}
		return nil
	}
}

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"
)

// Pair is a certificate with its chain, and the key of the certificate. Use ReadPair.
type Pair struct{ *files[tls.Certificate] }

// ReadPair reads a certificate and its key from PEM files. changed is called after each change of the files, with nil
// if the new certificate is in use, else with the reason why the previous one is. It may be nil.
func ReadPair(cert, key string, changed func(error)) (*Pair, error) {
	f, err := open(changed, func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, cert, key)
	return &Pair{f}, err
}

// NotAfter is when the certificate in use ends.
func (p *Pair) NotAfter() time.Time { return p.Current().Leaf.NotAfter }

// ForServer implements tls.Config.GetClientCertificate.
func (p *Pair) ForServer(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.Current(), nil
}

// Authorities are the certificates of the authorities that a peer is trusted by. Use ReadAuthorities.
type Authorities struct{ *files[authorities] }

// authorities are the certificates of a file.
type authorities struct {
	pool *x509.CertPool
	end  time.Time // of the certificate that ends last
}

// ReadAuthorities reads the certificates of authorities from a PEM file. changed is that of ReadPair.
func ReadAuthorities(path string, changed func(error)) (*Authorities, error) {
	f, err := open(changed, parseAuthorities, path)
	return &Authorities{f}, err
}

// Pool returns the authorities of the file, or the previous ones if it is broken.
func (a *Authorities) Pool() *x509.CertPool { return a.Current().pool }

// NotAfter is when the last of the authorities in use ends: from then on, no peer is trusted.
func (a *Authorities) NotAfter() time.Time { return a.Current().end }

// parseAuthorities reads the certificates of one file in PEM. Unlike x509.CertPool.AppendCertsFromPEM, it returns an error for a
// certificate that is cut off or cannot be parsed. Otherwise peers would be refused while the file is being written.
func parseAuthorities(contents [][]byte) (*authorities, error) {
	text := contents[0]
	a := &authorities{pool: x509.NewCertPool()}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			if bytes.Contains(text, []byte("-----BEGIN")) {
				return nil, errors.New("the last certificate is cut off")
			}
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		a.pool.AddCert(cert)
		if cert.NotAfter.After(a.end) {
			a.end = cert.NotAfter
		}
	}
	if a.end.IsZero() {
		return nil, errors.New("no certificate in PEM")
	}
	return a, nil
}

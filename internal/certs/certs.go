package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
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

// parseAuthorities reads the certificates of one file in PEM. Unlike x509.CertPool.AppendCertsFromPEM, it returns an
// error for a broken certificate. Otherwise peers would be refused while the file is being written.
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

// maxSize bounds a file in bytes. The authorities of a Linux distribution have 0.2 MB.
const maxSize = 16 << 20

// files is a value that is made of the contents of files, and made again when they change.
type files[T any] struct {
	follower *poll.Follower
	parse    func(contents [][]byte) (*T, error)
	// changed is that of ReadPair, called once for each change. It may be nil.
	changed func(error)

	reading sync.Mutex // only one goroutine reads; the others take the value as it is
	state   atomic.Pointer[state[T]]
}

type state[T any] struct {
	value *T
	err   error // why value is not of the contents that were read last
}

// open reads files for the first time. parse and changed are those of files.
func open[T any](changed func(error), parse func([][]byte) (*T, error), paths ...string) (*files[T], error) {
	f := &files[T]{follower: poll.NewOf(maxSize, paths...), parse: parse, changed: changed}
	r, _ := f.follower.Read()
	value, err := f.valueOf(r)
	if err != nil {
		return nil, err
	}
	f.state.Store(&state[T]{value: value})
	return f, nil
}

// Current reads the files again, and returns the value of their contents. It returns the previous value while another
// goroutine reads them, and after an error.
func (f *files[T]) Current() *T {
	if f.reading.TryLock() {
		defer f.reading.Unlock()
		f.update(f.state.Load())
	}
	return f.state.Load().value
}

// Err returns why the files are not in use; nil if they are.
func (f *files[T]) Err() error {
	f.Current()
	return f.state.Load().err
}

// update makes the value again if the files have changed. f.reading is held.
func (f *files[T]) update(last *state[T]) {
	r, agrees := f.follower.Read()
	if agrees {
		return
	}
	value, err := f.valueOf(r)
	if err != nil {
		value = last.value
	}
	f.state.Store(&state[T]{value, err})
	same := err != nil && last.err != nil && err.Error() == last.err.Error()
	if f.changed != nil && !same {
		f.changed(err)
	}
}

// valueOf returns the value of the contents of the files.
func (f *files[T]) valueOf(r poll.Reading) (*T, error) {
	var contents [][]byte
	var names []string
	for _, file := range r.Files {
		switch {
		case file.Err != nil:
			return nil, file.Err
		case len(file.Content) > maxSize:
			return nil, fmt.Errorf("%s: larger than %d MB", file.Name, maxSize>>20)
		}
		contents, names = append(contents, file.Content), append(names, file.Name)
	}
	value, err := f.parse(contents)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(names, " with "), err)
	}
	return value, nil
}

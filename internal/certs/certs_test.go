package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/test/testenv"
)

// renewals are the reports of changed files.
type renewals []string

func (r *renewals) changed(err error) {
	text := "renewed"
	if err != nil {
		text = err.Error()
	}
	*r = append(*r, text)
}

// TestPairIsReadAgain renews a certificate file by file, as a slow writer does, and breaks it.
func TestPairIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca := testenv.NewAuthority(t)
	first, second := ca.Issue(t, "spiffe://example.org/a", time.Hour), ca.Issue(t, "spiffe://example.org/a", time.Hour)
	testenv.WriteCertificate(t, first, file("cert.pem"), file("key.pem"))
	testenv.WriteCertificate(t, second, file("cert.new"), file("key.new"))
	var reports renewals
	pair, err := certs.ReadPair(file("cert.pem"), file("key.pem"), reports.changed)
	if err != nil {
		t.Fatal(err)
	}
	uses := func(step string, want tls.Certificate, broken bool) {
		t.Helper()
		if got := pair.Current(); !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
			t.Errorf("%s: another certificate than wanted", step)
		}
		if got := pair.Err(); (got != nil) != broken {
			t.Errorf("%s: error %v, want one: %t", step, got, broken)
		}
	}
	uses("unchanged", first, false)
	rename(t, file("cert.new"), file("cert.pem"))
	uses("a new certificate with the old key", first, true)
	rename(t, file("key.new"), file("key.pem"))
	uses("both are new", second, false)
	remove(t, file("key.pem"))
	uses("no key", second, true)
	testenv.WriteCertificate(t, first, file("cert.pem"), file("key.pem"))
	uses("the first one again", first, false)
	want := []string{"tls: private key does not match public key", "renewed", "no such file or directory", "renewed"}
	if len(reports) != len(want) {
		t.Fatalf("reports %q, want one of each of %q", reports, want)
	}
	for i, part := range want {
		if !strings.Contains(reports[i], part) {
			t.Errorf("report %d: %q, want %q in it", i, reports[i], part)
		}
	}
}

// TestAuthoritiesAreReadAgain replaces the file of the authorities, and breaks it. A file that is cut off never removes
// an authority.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.pem")
	one, two := testenv.NewAuthority(t), testenv.NewAuthority(t)
	one.Write(t, path)
	first := content(t, path)
	two.Write(t, path)
	second := content(t, path)
	write(t, path, first)
	authorities, err := certs.ReadAuthorities(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, content string
		want          *x509.CertPool
		err           string
	}{
		{"unchanged", first, one.Pool, ""},
		{"cut off in a second certificate", first + second[:100], one.Pool, "the last certificate is cut off"},
		{"no certificate", "text\n", one.Pool, "no certificate in PEM"},
		{"not a certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", one.Pool, "malformed"},
		{"another authority", second, two.Pool, ""},
		{"empty", "", two.Pool, "no certificate in PEM"},
	} {
		write(t, path, c.content)
		if !authorities.Pool().Equal(c.want) {
			t.Errorf("%s: other authorities than wanted", c.name)
		}
		if err := authorities.Err(); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.err)
		}
	}
}

// TestAuthoritiesEndWithTheLast: a file with an old and a new authority is of use until the new one ends.
func TestAuthoritiesEndWithTheLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, fresh := testenv.NewAuthority(t), testenv.NewAuthority(t)
	// A certificate that the authority has issued ends later than the authority itself.
	testenv.WriteCertificate(t, fresh.Issue(t, "example.org", 2*time.Hour), filepath.Join(dir, "new"),
		filepath.Join(dir, "key"))
	old.Write(t, filepath.Join(dir, "old"))
	for _, order := range [][2]string{{"old", "new"}, {"new", "old"}} {
		path := filepath.Join(dir, "bundle")
		write(t, path, content(t, filepath.Join(dir, order[0]))+content(t, filepath.Join(dir, order[1])))
		authorities, err := certs.ReadAuthorities(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(authorities.NotAfter()); left < 90*time.Minute {
			t.Errorf("%v: ends in %v, want about 2 h", order, left)
		}
	}
}

// TestBrokenFilesAtTheStart checks that the errors name the files.
func TestBrokenFilesAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testenv.WriteCertificate(t, testenv.NewAuthority(t).Issue(t, "spiffe://example.org/a", time.Hour), file("cert.pem"),
		file("key.pem"))
	for _, c := range []struct {
		name  string
		files certs.ClientFiles
		want  string
	}{
		{"no key", certs.ClientFiles{Cert: file("cert.pem"), Key: file("none.pem")}, "none.pem: no such file"},
		{"key and certificate swapped", certs.ClientFiles{Cert: file("key.pem"), Key: file("cert.pem")},
			"key.pem with " + file("cert.pem")},
		{"no CA", certs.ClientFiles{CA: file("none.pem")}, "none.pem: no such file"},
		{"a key as the CA", certs.ClientFiles{CA: file("key.pem")}, "key.pem: no certificate in PEM"},
		{"a directory", certs.ClientFiles{CA: dir}, "is a directory"},
	} {
		if _, err := certs.NewClient(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

// TestClientVerifiesTheServer connects to a server whose certificate is for 127.0.0.1.
func TestClientVerifiesTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	ca.Write(t, file("ca.pem"))
	other.Write(t, file("other.pem"))
	valid := serve(t, ca.Issue(t, "spiffe://example.org/server", time.Hour))
	expired := serve(t, ca.Issue(t, "spiffe://example.org/server", -time.Minute))
	for _, c := range []struct {
		name, address string
		files         certs.ClientFiles
		ok            bool
	}{
		{"its authority", valid, certs.ClientFiles{CA: file("ca.pem")}, true},
		{"another authority", valid, certs.ClientFiles{CA: file("other.pem")}, false},
		{"the authorities of the system", valid, certs.ClientFiles{}, false},
		{"another name", valid, certs.ClientFiles{CA: file("ca.pem"), ServerName: "server.example"}, false},
		{"any name", valid, certs.ClientFiles{CA: file("ca.pem"), ServerName: "server.example", AnyName: true}, true},
		{"any name, another authority", valid, certs.ClientFiles{CA: file("other.pem"), AnyName: true}, false},
		{"expired", expired, certs.ClientFiles{CA: file("ca.pem")}, false},
		{"expired, any name", expired, certs.ClientFiles{CA: file("ca.pem"), AnyName: true}, false},
	} {
		client, err := certs.NewClient(c.files)
		if err != nil {
			t.Fatal(err)
		}
		err = connect(t, c.address, client.Config())
		if _, refused := errors.AsType[*tls.CertificateVerificationError](err); refused == c.ok || err == nil != c.ok {
			t.Errorf("%s: %v, want a connection: %t", c.name, err, c.ok)
		}
	}
	client, err := certs.NewClient(certs.ClientFiles{CA: file("ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	other.Write(t, file("ca.pem"))
	if err := connect(t, valid, client.Config()); err == nil {
		t.Error("the server is still trusted by an authority that was replaced")
	}
}

// serve accepts TLS connections until the test ends.
func serve(t *testing.T, certificate tls.Certificate) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func connect(t *testing.T, address string, cfg *tls.Config) error {
	t.Helper()
	conn, err := (&tls.Dialer{NetDialer: new(net.Dialer), Config: cfg}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// publish serves the files of a page that are in a directory with the name of a host, such as keycloak.example, at that
// host, over HTTPS. A POST asks about a token (RFC 7662), with the file introspection-secret of the page as its secret.
// The answer is the file with the name of the token. Other tokens are not active. It returns the environment in which
// the service reaches it: a proxy, and an authority to trust.
func (r *recipe) publish(t *testing.T) (environment []string) {
	t.Helper()
	var hosts []string
	for path := range r.files {
		if host, _, _ := strings.Cut(path, "/"); strings.HasSuffix(host, ".example") {
			hosts = append(hosts, host)
		}
	}
	if hosts == nil {
		return nil
	}
	authority, file := testenv.NewAuthority(t), filepath.Join(t.TempDir(), "ca.pem")
	authority.Write(t, file)
	published := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		path, asks := request.Host+request.URL.Path, request.Method == http.MethodPost
		if asks {
			path += "/" + request.PostFormValue("token")
			if _, secret, _ := request.BasicAuth(); secret != strings.TrimSpace(r.files["introspection-secret"]) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
		}
		content, ok := r.files[path]
		if !ok && asks {
			content, ok = `{"active": false}`, true
		}
		if !ok {
			http.NotFound(w, request)
			return
		}
		_, _ = io.Copy(w, bytes.NewBufferString(content))
	}))
	published.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, hosts[0], time.Hour, hosts...)}}
	published.StartTLS()
	t.Cleanup(published.Close)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		to, err := net.Dial("tcp", published.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		go func() { _, _ = io.Copy(to, from) }()
		_, _ = io.Copy(from, to)
	}))
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Start()
	t.Cleanup(proxy.Close)
	return []string{"HTTPS_PROXY=" + proxy.URL, "SSL_CERT_FILE=" + file}
}

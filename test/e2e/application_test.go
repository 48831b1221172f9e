package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// application starts the application behind Envoy. It answers every request with 200 and the request line. Each
// header of the request, unless it is long, becomes a header of the response whose name begins with sawPrefix.
func application(t *testing.T) (addr string) {
	return testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			for _, v := range values {
				if len(v) < 1<<10 {
					w.Header().Add(sawPrefix+name, v)
				}
			}
		}
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			_, _ = fmt.Fprintf(w, "%s %s\n", r.Method, r.URL)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(make([]byte, 5)) // the frame of a message of length 0
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
}

const sawPrefix = "Saw-"

// saw returns the headers that the application received, or nil if the request did not reach it.
func (a answer) saw() http.Header {
	var seen http.Header
	for name, values := range a.header {
		if original, ok := strings.CutPrefix(name, sawPrefix); ok {
			if seen == nil {
				seen = http.Header{}
			}
			seen[original] = values
		}
	}
	return seen
}

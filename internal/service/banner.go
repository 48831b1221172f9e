package service

import (
	"fmt"
	"io"

	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// banner prints, when the sample is served, on which addresses and what to try. It is not a log line, so that no level hides it.
func banner(w io.Writer, s *Settings, l listeners) {
	fmt.Fprintf(w, `extauthz: no rules are configured (%s does not exist),
so the built-in sample is served, on loopback only, from memory.

  gRPC   %-22s for Envoy, see envoy/envoy.yaml
  HTTP   %-22s /json /check /healthcheck
  debug  %-22s /rlconfig /metrics

Try it; the sixth within a minute gets a 429:

  curl -i http://%s/json -d '%s'

And as Envoy's ext_authz filter asks, with a key that is for trying only; no key gets a 401, another one a 403:

  curl -i -H 'x-api-key: demo' http://%s/check/

`, s.rulesDirectory(), l.grpc.Addr(), l.http.Addr(), l.debug.Addr(), l.http.Addr(), rls.Example, l.http.Addr())
}

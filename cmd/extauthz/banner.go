package main

import (
	"fmt"
	"io"

	"github.com/extauthz/extauthz/pkg/ratelimit/envoyrls"
)

// banner tells who started the service without any configuration what it serves and what to try; it is no log line, so that no
// level hides it.
func banner(w io.Writer, s *Settings, r *ruleSource, l listeners) {
	if !r.sample {
		return
	}
	envoy := "envoy/envoy.yaml"
	if s.GRPCUDS != "" {
		envoy = "envoy/sidecar.yaml"
	}
	fmt.Fprintf(w, `extauthz: no rules are configured (%s does not exist),
so the built-in sample is served, on loopback only, from %s.

  gRPC   %-22s for Envoy, see %s
  HTTP   %-22s /json /check /healthcheck
  debug  %-22s /rlconfig /metrics /debug/pprof

Try it; the sixth within a minute gets a 429:

  curl -i http://%s/json -d '%s'

And as Envoy's ext_authz filter asks, with a key that is for trying only; no key gets a 401, another one a 403:

  curl -i -H 'x-api-key: demo' http://%s/check/

`, r.dir, s.storeName(), l.grpc.Addr(), envoy, l.http.Addr(), l.debug.Addr(), l.http.Addr(),
		envoyrls.Example, l.http.Addr())
}

// storeName says where the buckets are, for people.
func (s *Settings) storeName() string {
	if s.BackendType == "redis" {
		return "Redis"
	}
	return "memory"
}

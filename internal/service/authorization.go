package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// openAuthorization makes what answers Check, and the verifier of tokens. The policies name the issuers of tokens.
func (r *activeRules) openAuthorization() {
	s, log := r.Settings, r.log
	var transport http.RoundTripper // nil is the default
	if r.Clock != nil {
		transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("nothing is fetched while the clock is virtual")
		}}
	}
	r.tokens = jwt.New(jwt.Config{Now: r.now(), Transport: transport, OnReading: func(r jwt.Reading) {
		message := "cannot read the keys of an issuer; its previous keys stay active"
		if r.Keys == 0 {
			message = "cannot read the keys of an issuer; it has no keys yet, so requests with its tokens get 503"
		}
		if r.Err != nil {
			log.Error(message, "source", r.Source, "keys", r.Keys, "error", r.Err)
			return
		}
		log.Info("read the keys of an issuer", "source", r.Source, "keys", r.Keys, "skipped", r.Skipped)
	}})
	var logged logLimiter // one for each issuer
	r.opaque = jwt.NewIntrospector(jwt.Config{
		Now: r.now(), Transport: transport, OnFailure: func(url string, err error) {
			if logged.allow(url) {
				log.Error("cannot ask an issuer about a token; requests with tokens whose answer is not cached get 503 "+
					"(logged once a minute; see extauthz_introspection_calls_total)", "url", url, "error", err)
			}
		},
	})
	r.authorizer = authz.New(authz.Config{
		Policies: r.live.Policies, Domain: s.Authorization.Domain,
		Checkers: map[string]credential.Checker{apikey.Name: r.keys.keys, jwt.Name: r.tokens, jwt.OpaqueName: r.opaque},
		Headers:  s.Answers.ReplyHeaders(), ProblemBody: s.Answers.Body == "problem",
		OnUntrustedHops: warnOfHops(log),
	})
}

// checkSecrets reports the secrets of introspection that cannot be read. Each is read again for each call.
func (r *activeRules) checkSecrets() {
	for _, o := range authz.CredentialsOf[*jwt.Opaque](r.live.Policies()) {
		if _, err := o.Secret(); err != nil {
			r.log.Error("cannot read the secret of this service at an issuer (client_secret_file); "+
				"until it can be read, requests with tokens of that issuer get 503", "url", *o.IntrospectionURL, "error", err)
		}
	}
}

// warnOfHops returns a function that warns of an address that a client may have chosen, once a minute each.
func warnOfHops(log *slog.Logger) func(authz.UntrustedHops) {
	var logged logLimiter // two for each domain with a policy
	return func(h authz.UntrustedHops) {
		if !logged.allow(fmt.Sprint(h)) {
			return
		}
		if h.Absent {
			log.Warn("a request has no x-forwarded-for, so trusted_hops uses the address of the peer; "+
				"over HTTP, add x-forwarded-for to allowed_headers of Envoy's ext_authz filter; "+
				"over gRPC, set use_remote_address: true in Envoy's connection manager "+
				"(logged once a minute; see extauthz_authz_untrusted_hops_total)", "domain", h.Domain)
			return
		}
		log.Warn("x-forwarded-for does not end with the address of the peer, "+
			"so trusted_hops counts from an address that the peer may have forged; "+
			"set use_remote_address: true in Envoy's connection manager, without skip_xff_append, "+
			"and count this Envoy in trusted_hops (logged once a minute; see extauthz_authz_untrusted_hops_total)",
			"domain", h.Domain)
	}
}

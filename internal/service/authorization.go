package service

import (
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// authorization answers Check: the authorizer, and the verifier of tokens, whose issuers the policies name.
type authorization struct {
	authorizer *authz.Authorizer
	server     *auth.Server
	queue      *hold.Queue
	tokens     *jwt.Verifier
	log        *slog.Logger

	hopsSaid sometimes // by UntrustedHops, of which there are two for each domain with a policy
}

func newAuthorization(
	s *Settings, live *rules.Live, limiter *ratelimit.Limiter, queue *hold.Queue, keys authz.Keys, calls *calls, log *slog.Logger,
) *authorization {
	a := &authorization{queue: queue, log: log}
	a.tokens = jwt.New(jwt.Config{OnReading: func(r jwt.Reading) {
		if r.Err != nil {
			log.Error("the keys of an issuer cannot be read; its previous keys stay active", "source", r.Source, "keys", r.Keys, "error", r.Err)
			return
		}
		log.Info("keys of an issuer", "source", r.Source, "keys", r.Keys, "skipped", r.Skipped)
	}})
	a.authorizer = authz.New(authz.Config{
		Policies: live.Policies, Keys: keys, Tokens: a.tokens, Domain: s.AuthzDomain,
		Headers: s.headers(), ProblemBody: s.ResponseBody == "problem",
		OnUntrustedHops: a.warnOfHops,
	})
	a.server = auth.New(auth.Config{
		Authorizer: a.authorizer, Limiter: limiter, Log: log, LogClientValues: s.LogClientValues, Queue: queue,
		HTTP: auth.HTTPConfig{
			SourceHeader: string(s.SourceHeader), PrincipalHeader: string(s.PrincipalHeader), Timeout: s.HTTPTimeout,
			NeedsAddress: a.authorizer.NeedsPeer,
			Observe: func(verdict authz.Verdict, took time.Duration) {
				code := codes.OK
				if verdict == authz.Undecided { // 503, which is an error to Envoy
					code = codes.Unavailable
				}
				calls.observe(auth.HTTPPath, code, took)
			},
		},
	})
	return a
}

// warnOfHops warns, once a minute for each domain and reason, that a client may have chosen the address that a policy with trusted_hops uses.
func (a *authorization) warnOfHops(h authz.UntrustedHops) {
	if !a.hopsSaid.now(fmt.Sprint(h)) {
		return
	}
	if h.Absent {
		a.log.Warn("a request has no x-forwarded-for, which trusted_hops needs, so the address of the peer is used; over HTTP, add "+
			"x-forwarded-for to allowed_headers of Envoy's ext_authz filter; over gRPC, set use_remote_address: true in Envoy's connection manager "+
			"(logged once a minute; extauthz_authz_untrusted_hops_total counts the requests)", "domain", h.Domain)
		return
	}
	a.log.Warn("x-forwarded-for does not end with the address of the peer, so trusted_hops counts from an address that the peer may have "+
		"made up; set use_remote_address: true in Envoy's connection manager, without skip_xff_append, and let trusted_hops count this Envoy, too "+
		"(logged once a minute; extauthz_authz_untrusted_hops_total counts the requests)", "domain", h.Domain)
}

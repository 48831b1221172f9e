package service

import (
	"context"
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
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// authorization answers Check. The policies name the issuers whose tokens the verifier accepts.
type authorization struct {
	authorizer *authz.Authorizer
	server     *auth.Server
	queue      *hold.Queue
	tokens     *jwt.Verifier
	log        *slog.Logger

	hopsLog logLimiter // by UntrustedHops: two for each domain with a policy
}

func newAuthorization(
	s *Settings, live *rules.Live, limiter *ratelimit.Limiter, queue *hold.Queue, keys authz.Keys, calls *telemetry.Calls,
	decided func(context.Context, authz.Checked), log *slog.Logger,
) *authorization {
	a := &authorization{queue: queue, log: log}
	a.tokens = jwt.New(jwt.Config{OnReading: func(r jwt.Reading) {
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
	a.authorizer = authz.New(authz.Config{
		Policies: live.Policies, Keys: keys, Tokens: a.tokens, Domain: s.AuthzDomain,
		Headers: s.headers(), ProblemBody: s.ResponseBody == "problem",
		OnUntrustedHops: a.warnOfHops,
	})
	a.server = auth.New(auth.Config{
		Authorizer: a.authorizer, Limiter: limiter, Log: log, Decided: decided, Queue: queue,
		HTTP: auth.HTTPConfig{
			SourceHeader: string(s.SourceHeader), PrincipalHeader: string(s.PrincipalHeader), Timeout: s.HTTPTimeout,
			NeedsAddress: a.authorizer.NeedsPeer,
			Observe: func(verdict authz.Verdict, took time.Duration) {
				code := codes.OK
				if verdict == authz.Undecided { // 503, which is an error to Envoy
					code = codes.Unavailable
				}
				calls.Of(auth.HTTPPath).Observe(code, took)
			},
		},
	})
	return a
}

// warnOfHops warns that a policy with trusted_hops uses an address that a client may have chosen. It warns once a
// minute for each domain and reason.
func (a *authorization) warnOfHops(h authz.UntrustedHops) {
	if !a.hopsLog.allow(fmt.Sprint(h)) {
		return
	}
	if h.Absent {
		a.log.Warn("a request has no x-forwarded-for, so trusted_hops uses the address of the peer; over HTTP, add "+
			"x-forwarded-for to allowed_headers of Envoy's ext_authz filter; over gRPC, set use_remote_address: true in "+
			"Envoy's "+
			"connection manager (logged once a minute; see extauthz_authz_untrusted_hops_total)", "domain", h.Domain)
		return
	}
	a.log.Warn("x-forwarded-for does not end with the address of the peer, so trusted_hops counts from an address that "+
		"the "+
		"peer may have forged; set use_remote_address: true in Envoy's connection manager, without skip_xff_append, and "+
		"count "+
		"this Envoy in trusted_hops (logged once a minute; see extauthz_authz_untrusted_hops_total)", "domain", h.Domain)
}

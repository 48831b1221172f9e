package rules

import (
	"context"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Set is all rules of a source, of one generation. It is not changed after it was made.
type Set struct {
	// Domains are the rate limits, one element for each domain, in the order of the source.
	Domains []ratelimit.Domain
	// Policies are the policies of ext_authz by domain.
	Policies map[string]*authz.Policy
	// Generation identifies the content of the source: equal generations mean equal rules.
	Generation string
}

// Problems are the mistakes in a source.
type Problems = strictyaml.Problems

// Source provides rules and follows their changes.
type Source interface {
	// Load returns the rules and their problems. If one of the problems is an error, the set has only its generation. A
	// set without a generation means that the source has no rules yet, or that ctx was done before it had any. Load is
	// called once, before Run. ctx is done no earlier than that of Run.
	Load(ctx context.Context) (Set, Problems)
	// Run calls update once for each change until the context is done, one call after the other. A change with errors
	// is reported, too. If the active rules come back after it, they are reported again. Run may be called once.
	Run(ctx context.Context, update func(Update))
	// Reload makes Run look for a change at once, as on SIGHUP. It does not block and may be called from any goroutine.
	Reload()
}

// Update is a change of a source.
type Update struct {
	// Set is the new rules. If Problems has errors, it has only its generation, and the previous rules stay active.
	Set Set
	// Problems are the mistakes in the source, or the reason why it could not be read.
	Problems Problems
}

package rules

import (
	"context"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Set is all that a source says, of one generation. It is not changed after it was made.
type Set struct {
	// Domains are the rate limits, one element a domain, in the order of the source.
	Domains []ratelimit.Domain
	// Policies are the policies of authorization by domain.
	Policies map[string]*authz.Policy
	// Generation tells contents of the source apart: equal generations mean equal rules.
	Generation string
}

// Problems are what is wrong with the content of a source.
type Problems = strictyaml.Problems

// Source is where rules come from.
type Source interface {
	// Load returns the rules and what is wrong with them. If one of the problems is an error, the set has nothing
	// but its generation. Call it once, before Run.
	Load() (Set, Problems)
	// Run calls update once for each change until the context is done, one call after the other, also for a change
	// with errors. When the rules that are active come back after that, it is called again. Run may be called once.
	Run(ctx context.Context, update func(Update))
	// Reload makes Run look for a change at once, as on SIGHUP. It does not block and may be called from any
	// goroutine.
	Reload()
}

// Update is a change of a source.
type Update struct {
	// Set are the new rules. If Problems has errors, they have nothing but their generation and the previous rules
	// stay active.
	Set Set
	// Problems are the mistakes in the source, or why it could not be read.
	Problems Problems
	// Lost names what the new rules lack of what those before restrict, if it is suspicious that they lack it.
	Lost []string
	// Held says that the new rules must not become active yet, because of what is lost. Another Update follows:
	// with the same rules if they stay as they are for some time, or with others.
	Held bool
}

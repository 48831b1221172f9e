package jwt

import (
	"context"
	"reflect"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz"
)

// policy is what tokens are checked by: a validator for each of the issuers in force, and the sources of their keys. It does
// not change; another takes its place.
type policy struct {
	validators map[*authz.Issuer]*validator
	// before are those of the issuers before, for requests that were on their way when the issuers changed.
	before  map[*authz.Issuer]*validator
	sources map[string]*source
}

// validator checks the tokens of one issuer.
type validator struct {
	issuer     *authz.Issuer
	algorithms []jose.SignatureAlgorithm
	source     *source
}

func (p *policy) validator(issuer *authz.Issuer) *validator {
	if v, ok := p.validators[issuer]; ok {
		return v
	}
	return p.before[issuer]
}

// SetIssuers puts issuers in force: those of Policies, which do not change afterwards. Call it with each new set of policies, before
// they are used. Keys of a file or URL that is new are read at once, in the background; those of one that no issuer names any more
// are not read again. An issuer that is as before keeps its keys and verified tokens, also if it is at another address. After Close
// it does nothing.
func (v *Verifier) SetIssuers(issuers []*authz.Issuer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	old := v.policy.Load()
	next := &policy{
		validators: make(map[*authz.Issuer]*validator, len(issuers)), before: old.validators, sources: map[string]*source{},
	}
	for _, issuer := range issuers {
		val := newValidator(issuer)
		val.source = v.source(issuer, old, next)
		next.validators[issuer] = old.likewise(val)
	}
	v.policy.Store(next)
	for name, s := range old.sources {
		if next.sources[name] == nil {
			s.stop()
		}
	}
}

// source returns the source of an issuer's keys: the one that is there already, or a new one that begins to read.
func (v *Verifier) source(issuer *authz.Issuer, old, next *policy) *source {
	origin := v.origin(issuer)
	name := origin.name()
	if next.sources[name] == nil {
		next.sources[name] = old.sources[name]
	}
	if next.sources[name] == nil {
		ctx, cancel := context.WithCancel(context.Background())
		src := newSource(v.cfg, origin, cancel)
		v.running.Go(func() { src.run(ctx) })
		next.sources[name] = src
	}
	return next.sources[name]
}

func (v *Verifier) origin(issuer *authz.Issuer) origin {
	if issuer.JWKSFile != "" {
		return file(issuer.JWKSFile)
	}
	return newEndpoint(issuer.JWKSURL, v.cfg)
}

func newValidator(issuer *authz.Issuer) *validator {
	v := &validator{issuer: issuer}
	for _, name := range issuer.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	return v
}

// likewise returns the validator of the policy that does the same as another, so that its verified tokens stay known; that other
// one if there is none.
func (p *policy) likewise(v *validator) *validator {
	for _, known := range p.validators {
		if known.source == v.source && reflect.DeepEqual(known.issuer, v.issuer) {
			return known
		}
	}
	return v
}

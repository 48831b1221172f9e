package jwt

import (
	"cmp"
	"context"
	"reflect"
)

// policy holds the active issuers. It does not change; SetIssuers replaces it.
type policy struct {
	// before are the validators of the previous issuers, for requests that began before the issuers changed.
	validators, before map[*Credential]*validator
	sources            map[string]*source
}

// validator checks the tokens of one issuer.
type validator struct {
	issuer *Credential
	source *source
}

// SetIssuers makes the issuers of policies the active ones. Call it with each new set of policies before its first use.
// Keys of a new file or URL are read at once, in the background. Keys without an issuer are not read again. An issuer
// that equals a previous one keeps its keys and verified tokens. After Close, SetIssuers does nothing.
func (v *Verifier) SetIssuers(issuers []*Credential) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	old := v.policy.Load()
	next := &policy{
		validators: make(map[*Credential]*validator, len(issuers)), before: old.validators, sources: map[string]*source{},
	}
	for _, issuer := range issuers {
		val := old.equal(issuer)
		if val == nil {
			val = &validator{issuer, v.source(issuer, old, next)}
		}
		next.validators[issuer] = val
		next.sources[val.source.name] = val.source
	}
	v.policy.Store(next)
	for name, s := range old.sources {
		if next.sources[name] == nil {
			s.stop()
		}
	}
}

// equal returns the validator of an issuer with equal settings, so that its verified tokens stay cached; nil for none.
func (p *policy) equal(issuer *Credential) *validator {
	for known, v := range p.validators {
		if reflect.DeepEqual(known, issuer) {
			return v
		}
	}
	return nil
}

// source returns the source of an issuer's keys: the existing one, or a new one that begins to read.
func (v *Verifier) source(issuer *Credential, old, next *policy) *source {
	from := file(text(issuer.JWKSFile))
	if issuer.JWKSFile == nil {
		from = endpoint(text(issuer.JWKSURL), v.client)
	}
	if known := cmp.Or(next.sources[from.name], old.sources[from.name]); known != nil {
		return known
	}
	s := &source{origin: from, cfg: v.cfg, running: &v.running}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.start(0) // so that requests wait for the keys
	return s
}

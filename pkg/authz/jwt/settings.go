package jwt

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz"
)

// maxLeeway is the most that clocks may differ.
const maxLeeway = time.Minute

// policy is what tokens are checked by: a validator for each of the settings in force, and the sources of their keys. It does
// not change; another takes its place.
type policy struct {
	validators map[*authz.JWT]*validator
	// before are those of the settings before, for requests that were on their way when the settings changed.
	before  map[*authz.JWT]*validator
	sources map[string]*source
}

// validator checks tokens by the settings of one credential.
type validator struct {
	settings   authz.JWT // with defaults, and a copy of its own
	algorithms []jose.SignatureAlgorithm
	source     *source // nil for settings that can not be used
}

func (p *policy) validator(settings *authz.JWT) *validator {
	if v, ok := p.validators[settings]; ok {
		return v
	}
	return p.before[settings]
}

// SetSettings puts settings in force: those of all credentials of all policies, which must not change afterwards. Call it with
// each new set of policies, before they are used. Keys of a file or URL that is new are read at once, in the background;
// those of one that no settings name any more are not read again. What is as before keeps its keys and verified tokens, also
// when it is at another address. After Close it does nothing.
//
// The error tells which settings can not be used, all of them; these refuse every token. See Validate.
func (v *Verifier) SetSettings(settings []*authz.JWT) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	old := v.policy.Load()
	next := &policy{validators: make(map[*authz.JWT]*validator, len(settings)), before: old.validators, sources: map[string]*source{}}
	var problems []error
	for _, s := range settings {
		val := newValidator(s)
		if err := Validate(s); err != nil {
			problems = append(problems, fmt.Errorf("issuer %q: %w", s.Issuer, err))
		} else {
			val.source = v.source(&val.settings, old, next)
		}
		next.validators[s] = old.likewise(val)
	}
	v.policy.Store(next)
	for name, s := range old.sources {
		if next.sources[name] == nil {
			s.stop()
		}
	}
	return errors.Join(problems...)
}

// source returns the source of the settings' keys: the one that is there already, or a new one that begins to read.
func (v *Verifier) source(s *authz.JWT, old, next *policy) *source {
	origin := v.origin(s)
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

func (v *Verifier) origin(s *authz.JWT) origin {
	if s.JWKSFile != "" {
		return file(s.JWKSFile)
	}
	return newEndpoint(s.JWKSURL, v.cfg)
}

func newValidator(s *authz.JWT) *validator {
	v := &validator{settings: *s}
	v.settings.Audiences = slices.Clone(s.Audiences)
	v.settings.Algorithms = slices.Clone(s.Algorithms)
	if v.settings.OwnerClaim == "" {
		v.settings.OwnerClaim = "sub"
	}
	if v.settings.ScopesClaim == "" {
		v.settings.ScopesClaim = "scope"
	}
	for _, name := range v.settings.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	return v
}

// likewise returns the validator of the policy that does the same as another, so that its verified tokens stay known; that other
// one if there is none.
func (p *policy) likewise(v *validator) *validator {
	for _, known := range p.validators {
		if known.source == v.source && reflect.DeepEqual(known.settings, v.settings) {
			return known
		}
	}
	return v
}

// Validate returns everything because of which settings can not be used; nil for good ones.
func Validate(s *authz.JWT) error {
	var problems []error
	report := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	report(s.Issuer == "", "no issuer: name the iss of its tokens")
	report(len(s.Audiences) == 0, "no audiences: name the aud of tokens for this service")
	report(slices.Contains(s.Audiences, ""), "an audience is empty")
	report(len(s.Algorithms) == 0, "no algorithms: name those that the issuer signs with, such as RS256")
	for _, a := range s.Algorithms {
		report(!Supported(a), "algorithm %q: want one with a public key: RS256, PS256, ES256, their larger kin, or EdDSA", a)
	}
	report(s.Leeway < 0 || s.Leeway > maxLeeway, "leeway %v: want 0s to %v", s.Leeway, maxLeeway)
	report((s.JWKSFile == "") == (s.JWKSURL == ""), "want either a file or a URL of the issuer's keys")
	if s.JWKSURL != "" {
		if err := checkURL(s.JWKSURL); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

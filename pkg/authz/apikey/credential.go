package apikey

import (
	"context"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Credential accepts a key of the key file or of Redis. It is a credential.Kind, and Keys is its Checker.
type Credential struct {
	credential.Source `yaml:",inline"`
}

// Name is the key of API keys in policies.
const Name = "api_key"

// Traits returns those of API keys.
func (*Credential) Traits() credential.Traits {
	return credential.Traits{Name: Name, Scheme: "ApiKey", Secret: true, Gives: []string{"scope", "label"}}
}

// String returns the place.
func (c *Credential) String() string { return c.Place().String() }

// Check reports a key that has no place, or one where it cannot be.
func (c *Credential) Check(m *ratelimit.Mistakes, path string) {
	if c.Place().In == credential.Nowhere {
		var keys []string
		for _, key := range credential.SourceKeys {
			keys = append(keys, path+"."+key)
		}
		m.At(path, keys...).Lacking().Fail("`api_key` without `header`, `scheme`, `query` or `cookie`", "add one of them")
	}
	c.Source.Check(m, path)
}

// Identify returns what Check returns.
func (k *Keys) Identify(_ context.Context, _ credential.Kind, key string) (credential.Identity, error) {
	return k.Check(key)
}

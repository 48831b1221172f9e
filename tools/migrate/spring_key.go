package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// SpringKey is by what a KeyResolver limits.
type SpringKey struct {
	// Source is owner, address, header or query. Name is the name of the header or of the query parameter.
	Source, Name string
	// Action is the action of the policy, in YAML. Entry is the key of the entry that it makes.
	Action, Entry string
}

// owner is the default key.
func owner() SpringKey {
	return SpringKey{Source: "owner", Action: "credential: { field: owner }", Entry: "owner"}
}

// ParseSpringKey reads owner, address, header:NAME or query:NAME.
func ParseSpringKey(text string) (SpringKey, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case text == "owner":
		return owner(), nil
	case text == "address":
		return SpringKey{Source: kind, Action: "remote_address:", Entry: "remote_address"}, nil
	case (kind == "header" || kind == "query") && plainScalar.MatchString(name) && !strings.Contains(name, "*"):
		action := "request_headers: { header: %s, key: %[1]s }"
		if kind == "query" {
			action = "query_parameter: { parameter: %s, key: %[1]s }"
		}
		return SpringKey{Source: kind, Name: name, Action: fmt.Sprintf(action, scalar(name)), Entry: name}, nil
	}
	return SpringKey{}, fmt.Errorf("want owner, address, header:NAME or query:NAME")
}

// anonymous reports whether the key needs no credential.
func (k SpringKey) anonymous() bool { return k.Entry != "owner" }

var beanReference = regexp.MustCompile(`^#\{@([A-Za-z_][A-Za-z0-9_]*)\}$`)

// resolver returns the key of a `key-resolver`. Without one, Spring takes the name of the principal.
func (s *spring) resolver(v *strictyaml.Value) SpringKey {
	bean := "PrincipalNameKeyResolver"
	if !v.IsAbsent() {
		groups := beanReference.FindStringSubmatch(v.Text())
		if groups == nil {
			s.Document.Fail(v, "the key resolver "+v.String()+" is no bean", "write a bean, such as `#{@userKeyResolver}`")
			return owner()
		}
		bean = groups[1]
	}
	for _, name := range []string{bean, ""} {
		if key, ok := s.options.Keys[name]; ok {
			return key
		}
	}
	if !slices.Contains(s.resolvers, bean) {
		s.resolvers = append(s.resolvers, bean)
	}
	return owner()
}

// checkKeys reports keys without a credential if requests without a key are to be refused: there is no such policy.
func (s *spring) checkKeys() {
	for _, r := range s.routes {
		if r.Limited() && r.Key.anonymous() && r.Key.Entry != "remote_address" && !r.Empty.Pass {
			s.Warn(r.filter,
				"a request without "+suggest.Quoted(r.Key.Entry)+" passes without a limit here, and Spring refuses it",
				"let Envoy refuse it, or set a default in its route")
		}
	}
}

package migrate

import (
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// find returns the value at a path of property names in canonical form, nil for none. As in Spring, keys can join names
// by dots, and case, hyphens and underscores of a name do not matter.
func find(v *strictyaml.Value, path ...string) *strictyaml.Value {
	for key, value := range v.Fields() {
		rest := path
		for name := range strings.SplitSeq(key, ".") {
			if len(rest) == 0 || canonical(name) != rest[0] {
				rest = nil
				value = nil
				break
			}
			rest = rest[1:]
		}
		if value == nil {
			continue
		}
		if len(rest) == 0 {
			return value
		}
		if found := find(value, rest...); found != nil {
			return found
		}
	}
	return nil
}

// canonical returns the form of a property name that find compares.
func canonical(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

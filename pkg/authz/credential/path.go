package credential

import (
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Path names a value in nested values, such as the claims of a token. NewPath reads the text of a rule file.
type Path struct {
	// Whole is the text. A value of the top level with this whole name has priority over Names. It is "" for a list.
	Whole string
	// Names lead to the value, one for each level: the text split at its dots, or the list.
	Names []string
}

// NewPath returns the path of a text.
func NewPath(text string) *Path { return &Path{Whole: text, Names: strings.Split(text, ".")} }

// UnmarshalText reads a text, which is split at its dots.
func (p *Path) UnmarshalText(text []byte) error {
	*p = *NewPath(string(text))
	return nil
}

// UnmarshalList reads a list, whose elements are not split.
func (p *Path) UnmarshalList(names []string) { *p = Path{Names: names} }

// String returns the names with dots between them, "" for nil.
func (p *Path) String() string {
	if p == nil {
		return ""
	}
	return strings.Join(p.Names, ".")
}

// Check reports a path with an empty name. key is the path of its key in the file.
func (p *Path) Check(m *ratelimit.Mistakes, key string) {
	switch {
	case p == nil:
	case p.String() == "":
		name := key[strings.LastIndexByte(key, '.')+1:]
		m.At(key).Fail(suggest.Quoted(name)+" is empty", "write its value, or delete the key")
	case slices.Contains(p.Names, ""):
		m.At(key).Fail(suggest.Quoted(p.String())+" has an empty name beside a dot",
			"write a name before and after each dot, such as `realm_access.roles`",
			"a name with dots of its own is an element of a list, such as `[resource_access, shop.api, roles]`")
	}
}

// After returns the path after its first name.
func (p *Path) After() *Path {
	_, whole, _ := strings.Cut(p.Whole, ".")
	return &Path{Whole: whole, Names: p.Names[1:]}
}

// In returns the value, nil if there is none. A number is the index of an element only in a list, and a name elsewhere.
func (p *Path) In(values map[string]any) any {
	if value, whole := values[p.Whole]; whole && p.Whole != "" {
		return value
	}
	var at any = values
	for _, name := range p.Names {
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			i, err := strconv.ParseUint(name, 10, 31)
			if err != nil || int(i) >= len(v) {
				return nil
			}
			at = v[i]
		default:
			return nil
		}
	}
	return at
}

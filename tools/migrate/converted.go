package migrate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// Converted is what a configuration of another service becomes. In JSON it has the keys of `migrate -o json`.
type Converted struct {
	// Files are the rule files, with names that are fit for a directory of rules.
	Files []strictyaml.File `json:"-"`
	// Settings are the environment variables that belong to the rules, as NAME=value.
	Settings []string `json:"settings,omitempty"`
	// Routes are routes of Envoy that send what the rules need, in YAML; "" for none.
	Routes string `json:"envoy_routes,omitempty"`
	// Gateway is the converted Spring Cloud Gateway.
	Gateway SpringGateway `json:"-"`
	// Notes tell the operator what to do or to know, one sentence or more each.
	Notes []string `json:"notes,omitempty"`
	// Problems are those of the configuration. What has an error is left out of the files.
	Problems rules.Problems `json:"problems"`

	names map[string]bool // of the files, without .yaml, in lower case
}

func (c *Converted) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// add adds a rule file. If parts of the source could not be converted, the file begins with the list of their
// positions. The problems of the rule file itself are problems of the result.
func (c *Converted) add(name, source, content string) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Converted from %s by extauthz-tools migrate.\n", comment(source))
	for _, p := range c.Problems {
		if !p.Warning {
			fmt.Fprintf(&b, "# NOT converted: %s:%d: %s\n", comment(p.File), p.Line, comment(p.Message))
		}
	}
	b.WriteString(content)
	c.Files = append(c.Files, strictyaml.File{Name: name, Content: []byte(b.String())})
}

// check adds the problems that the rule files have by themselves. The checks of the source are meant to leave none.
func (c *Converted) check() {
	_, problems := file.Parse(c.Files, file.Config{})
	c.Problems = append(c.Problems, problems...)
}

// fileName returns a new name for the rule file of a domain. A rule directory ignores names that begin with a dot.
func (c *Converted) fileName(domain string) string {
	const longest = 100
	name := strings.TrimLeft(unusual.ReplaceAllString(domain, "-"), ".")
	name = cmp.Or(name[:min(len(name), longest)], "rules")
	if c.names == nil {
		c.names = map[string]bool{}
	}
	unique := name
	for i := len(c.Files) + 1; c.names[strings.ToLower(unique)]; i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	c.names[strings.ToLower(unique)] = true // some file systems ignore case
	return unique + ".yaml"
}

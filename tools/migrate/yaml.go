package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// writeNodes writes the value of `descriptors:`. The position of a limit follows it as a comment.
func writeNodes(b *strings.Builder, nodes []ratelimit.Node, indent string) {
	for _, n := range nodes {
		fmt.Fprintf(b, "%s- key: %s\n", indent, scalar(n.Key))
		inner := indent + "  "
		if n.Value != "" {
			fmt.Fprintf(b, "%svalue: %s\n", inner, scalar(n.Value))
		}
		if n.ShareThreshold {
			fmt.Fprintf(b, "%sshare_threshold: true\n", inner)
		}
		switch {
		case len(n.Limits) == 1:
			fmt.Fprintf(b, "%srate_limit: %s\n", inner, limitText(n.Limits[0]))
		case len(n.Limits) > 1:
			fmt.Fprintf(b, "%slimits:\n", inner)
			for _, l := range n.Limits {
				fmt.Fprintf(b, "%s  - %s\n", inner, limitText(l))
			}
		}
		if len(n.Descriptors) > 0 {
			fmt.Fprintf(b, "%sdescriptors:\n", inner)
			writeNodes(b, n.Descriptors, inner+"  ")
		}
	}
}

// limitText returns a limit in one line, with its position as a comment.
func limitText(l ratelimit.Limit) string {
	if l.Unlimited {
		return "{ unlimited: true }"
	}
	keys := []string{"unit: " + l.Unit.String()}
	if l.Multiplier > 1 {
		keys = append(keys, fmt.Sprintf("unit_multiplier: %d", l.Multiplier))
	}
	keys = append(keys, fmt.Sprintf("requests_per_unit: %d", *l.Requests))
	if l.Algorithm != 0 {
		keys = append(keys, "algorithm: "+l.Algorithm.String())
	}
	if l.Burst > 0 {
		keys = append(keys, fmt.Sprintf("burst: %d", l.Burst))
	}
	if l.Name != "" {
		keys = append(keys, "name: "+scalar(l.Name))
	}
	return "{ " + strings.Join(keys, ", ") + " } # " + comment(l.Position)
}

var plainScalar = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./*-]*$`)

// scalar returns a text as a scalar of YAML, also for flow maps. Texts that could be read as something else are quoted.
func scalar(text string) string {
	words := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
	if plainScalar.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text) // its escapes are also those of YAML
}

// comment returns a text that cannot end a comment of YAML.
func comment(text string) string {
	return suggest.Printable(text, len(text))
}

// unusual is a character that not every header and every file can have in a name.
var unusual = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

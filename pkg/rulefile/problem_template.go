package rulefile

import (
	"net/url"
	"regexp"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// placeholders are what a template of a problem detail can name: see ratelimit.Problem.
var placeholders = []string{"retry_after", "limit", "window", "policy"}

var placeholder = regexp.MustCompile(`\{(\w*)\}`)

// problemTemplate makes the template of the body of a denial; nil when the file has none.
func (b builder) problemTemplate(g given[problemKeys]) *ratelimit.Problem {
	if !g.set {
		return nil
	}
	p := g.value
	if !p.kind.set && !p.title.set && !p.detail.set {
		b.fail(g.key, "`problem` says nothing", "add `type`, `title` or `detail`, or delete it")
	}
	if _, err := url.Parse(p.kind.value); err != nil {
		b.fail(p.kind.at, "`type` is no URI: "+quoted(p.kind.value), "want one as RFC 9457 has it, such as https://shop.example/problems/too-many")
	}
	for _, text := range []given[string]{p.title, p.detail} {
		for _, found := range placeholder.FindAllStringSubmatch(text.value, -1) {
			if slices.Contains(placeholders, found[1]) {
				continue
			}
			hints := []string{"want {retry_after}, {limit}, {window} or {policy}"}
			if meant := suggest.Closest(found[1], placeholders); meant != "" {
				hints = append([]string{"did you mean `{" + meant + "}`?"}, hints...)
			}
			b.fail(text.at, "there is nothing to put in place of "+quoted(found[0]), hints...)
		}
	}
	return &ratelimit.Problem{Type: p.kind.value, Title: p.title.value, Detail: p.detail.value}
}

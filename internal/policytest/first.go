package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// first writes a first file with tests. It sends each request, and writes what became of it.
type first struct {
	ctx      context.Context
	settings *settings.Settings
	rules    []string
	networks networks.Lists
	text     strings.Builder
}

// First returns a first file with tests of rules, to be written to a path. The tests pass. They send each
// rule as many hits as its limit allows and one more, and each policy a request without a credential.
func First(ctx context.Context, s *settings.Settings, path string, paths []string) (string, error) {
	f := &first{ctx: ctx, settings: s, rules: paths}
	o, err := (&File{Rules: paths, Start: defaultStart}).open(ctx, s)
	if err != nil {
		return "", err
	}
	active := o.Active()
	o.Close()
	f.networks = active.Set.Networks
	f.text.WriteString("# What the rules do now, by extauthz test --init. Change it to what they must do.\nrules")
	for _, p := range paths {
		if here, err := filepath.Abs(filepath.Dir(path)); err == nil && path != strictyaml.Stdin && !filepath.IsAbs(p) {
			absolute, _ := filepath.Abs(p) // it can fail only as above
			p, _ = filepath.Rel(here, absolute)
		}
		f.text.WriteString(" " + quote(p))
	}
	f.text.WriteString("\n")
	for _, rule := range active.Limits.All() {
		err = errors.Join(err, f.rule(rule))
	}
	for _, domain := range slices.Sorted(maps.Keys(active.Set.Policies)) {
		err = errors.Join(err, f.test("a call of "+domain+" without a credential", "check GET / domain "+quote(domain)))
	}
	return f.text.String(), err
}

// rule writes the test of a rule: what its tightest limit allows, and one hit more.
func (f *first) rule(r *ratelimit.Rule) error {
	var entries []string
	for _, n := range r.Path() {
		value := cmp.Or(n.Value, "any")
		if prefixes := f.networks[n.Network]; len(prefixes) > 0 {
			value = prefixes[0].Addr().String()
		}
		entries = append(entries, strings.ReplaceAll(n.Key+"="+value, "*", "any"))
	}
	request := "limit " + quote(r.Domain) + " " + quote(strings.Join(entries, ","))
	title := "rule " + r.Name + " of " + r.Domain
	if r.Unlimited {
		return f.test(title+": no limit", request)
	}
	capacity := int64(math.MaxUint32)
	for i := range r.Limits {
		capacity = min(capacity, r.Limits[i].Capacity())
	}
	if capacity == 0 {
		return f.test(title+": nothing is allowed", request)
	}
	title += ": " + suggest.Counted(int(capacity), "hit") + ", and one more"
	return f.test(title, fmt.Sprintf("%s hits %d", request, capacity), request)
}

// test writes a test that sends requests at one time.
func (f *first) test(title string, requests ...string) error {
	const allowed = " -> allowed\n" // any expectation
	file, problems := Parse("", []byte("rules -\ntest -\n"+strings.Join(requests, allowed)+allowed))
	if problems.HasErrors() { // such as a value with a comma
		fmt.Fprintf(&f.text, "\n# %s: write the request in JSON, as `request FILE`\n", suggest.Visible(title))
		return nil
	}
	file.Rules = f.rules
	o, err := file.open(f.ctx, f.settings)
	if err != nil {
		return err
	}
	defer o.Close()
	fmt.Fprintf(&f.text, "\ntest %s\n", strings.NewReplacer("'", "", `"`, "", "#", "").Replace(suggest.Visible(title)))
	for i, request := range requests {
		got, _ := o.send(f.ctx, &file.Tests[0].Steps[i])
		fmt.Fprintf(&f.text, "  %s -> %s", request, got.values[""][len(got.values[""])-1])
		if got.Rule != "" {
			label := map[bool]string{true: "remaining=", false: "retry_after="}[got.Verdict == "allowed"]
			fmt.Fprintf(&f.text, " %s %s%s", quote("rule="+got.Rule), label, got.values[label][0])
		}
		f.text.WriteString("\n")
	}
	return nil
}

// quote returns a word as a file has it. The format cannot have a word with spaces and both quotes.
func quote(text string) string {
	switch {
	case text != "" && !strings.ContainsAny(text, " \t") && !strings.ContainsAny(text[:1], `#'"`):
		return text
	case strings.Contains(text, "'"):
		return `"` + text + `"`
	}
	return "'" + text + "'"
}

package policytest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// first writes a first file with tests. It sends each request, and writes what became of it.
type first struct {
	ctx      context.Context
	settings *settings.Settings
	rules    []string
	key      string // the line of an API key with all scopes, "" without access rules
	text     strings.Builder
	names    map[string]bool
}

// First returns a first file with tests of rules, to be written to a path. The tests pass. They hit each rule with as
// many hits as its limit allows and one more, and each access rule without and with an API key.
func First(ctx context.Context, s *settings.Settings, path string, paths []string) (string, error) {
	f := &first{ctx: ctx, settings: s, rules: paths, names: map[string]bool{}}
	o, err := (&File{Rules: paths, Start: defaultStart}).open(ctx, s)
	if err != nil {
		return "", err
	}
	set := o.Active().Set
	o.Close()
	f.text.WriteString("# What the rules do now, by extauthz test --init. Change it to what they must do.\nrules")
	for _, p := range paths {
		if path != strictyaml.Stdin && !filepath.IsAbs(p) {
			p = relative(filepath.Dir(path), p)
		}
		word, _ := quote(p)
		f.text.WriteString(" " + word)
	}
	f.text.WriteString("\n")
	if f.key = keyOf(set.Policies); f.key != "" {
		f.text.WriteString(f.key + "\n")
	}
	for _, d := range set.Domains {
		if err := f.nodes(d.Name, nil, d.Descriptors); err != nil {
			return "", err
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(set.Policies)) {
		if err := f.test(domain+": who may call", checks(domain, len(set.Policies), set.Policies[domain])...); err != nil {
			return "", err
		}
	}
	return f.text.String(), nil
}

// relative returns a path relative to a directory, if there is one.
func relative(dir, path string) string {
	dir, err := filepath.Abs(dir)
	if err == nil {
		if absolute, err := filepath.Abs(path); err == nil {
			if r, err := filepath.Rel(dir, absolute); err == nil {
				return r
			}
		}
	}
	return path
}

// keyOf returns a line with an API key that has all scopes of access rules, "" if no policy accepts API keys.
func keyOf(policies map[string]*authz.Policy) string {
	used := false
	var scopes []string
	for _, p := range policies {
		used = used || keyHeader(p) != ""
		for _, a := range p.Access {
			scopes = append(scopes, a.Scopes...)
		}
	}
	if !used {
		return ""
	}
	slices.Sort(scopes)
	line := "key first-key owner=first"
	if scopes = slices.Compact(scopes); len(scopes) > 0 {
		word, _ := quote("scope=" + strings.Join(scopes, ","))
		line += " " + word
	}
	return line
}

// keyHeader returns the header that carries the key of keyOf, "" for none.
func keyHeader(p *authz.Policy) string {
	for _, c := range p.Credentials {
		if c.APIKey == nil {
			continue
		}
		switch at := c.APIKey.Place(); at.In {
		case credential.Header:
			return at.Name + ":first-key"
		case credential.Scheme:
			return "'authorization:" + at.Name + " first-key'"
		}
	}
	return ""
}

// checks returns requests to each access rule of a policy, and to a path that has none. A policy that is the only one
// needs no domain.
func checks(domain string, policies int, p *authz.Policy) (list []string) {
	end := ""
	if policies > 1 {
		domain, _ = quote(domain)
		end = " domain " + domain
	}
	for _, a := range append(slices.Clone(p.Access), authz.Access{}) {
		method, path, end := "GET", "/any", end
		if len(a.Methods) > 0 {
			method = a.Methods[0]
		}
		if _, text := a.Path.Form(); text != "" {
			path, _ = quote(placeholder.ReplaceAllString(text, "any"))
		}
		if len(a.Hosts) > 0 {
			end += " host " + strings.ReplaceAll(a.Hosts[0], "*", "any")
		}
		request := "check " + method + " " + path + end
		list = append(list, request)
		if key := keyHeader(p); key != "" {
			list = append(list, request+" "+key)
		}
	}
	return list
}

var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// nodes writes a test for each rule below some entries.
func (f *first) nodes(domain string, entries []string, list []ratelimit.Node) error {
	for i := range list {
		n := &list[i]
		value := "any"
		if n.Value != "" {
			value = strings.ReplaceAll(n.Value, "*", "any")
		}
		all := append(entries[:len(entries):len(entries)], strings.ReplaceAll(n.Key, "*", "any")+"="+value)
		if len(n.AllLimits()) > 0 {
			if err := f.rule(domain, n.Position, all); err != nil {
				return err
			}
		}
		if err := f.nodes(domain, all, n.Descriptors); err != nil {
			return err
		}
	}
	return nil
}

// rule writes the test of a rule: what its limits allow, and one hit more.
func (f *first) rule(domain, at string, entries []string) error {
	name, _ := quote(domain)
	descriptor, _ := quote(strings.Join(entries, ","))
	request := "limit " + name + " " + descriptor
	file, ok := f.parse(request)
	if !ok { // a value has a comma, or both quotes
		fmt.Fprintf(&f.text, "\n# %s: no test: its request needs JSON, as `request FILE`\n", at)
		return nil
	}
	o, err := file.open(f.ctx, f.settings)
	if err != nil {
		return err
	}
	defer o.Close()
	_, why := o.send(f.ctx, &file.Tests[0].Steps[0])
	capacity := int64(-1) // of the tightest limit; that of a limit in shadow only without another
	shadow := true
	for _, d := range why.Descriptors {
		for _, b := range d.Buckets {
			if capacity < 0 || shadow && !b.Shadow || shadow == b.Shadow && b.Capacity < capacity {
				capacity, shadow = b.Capacity, b.Shadow
			}
		}
	}
	title := domain + " " + strings.Join(entries, ",") + ": "
	const fewTimes = 10
	switch {
	case capacity < 0:
		return f.test(title+"no limit", request)
	case capacity == 0:
		return f.test(title+"nothing passes", request)
	case capacity <= fewTimes:
		return f.test(title+strconv.FormatInt(capacity, 10)+" pass, and one more", fmt.Sprintf("%s x%d", request, capacity),
			request)
	}
	capacity = min(capacity, math.MaxUint32)
	return f.test(title+strconv.FormatInt(capacity, 10)+" pass, and one more",
		fmt.Sprintf("%s hits %d", request, capacity), request)
}

// parse returns a file with a test that sends some requests. ok is false if the format cannot have them.
func (f *first) parse(requests ...string) (file *File, ok bool) {
	file, problems := Parse("", []byte("rules -\n"+f.key+"\ntest any\n"+strings.Join(requests, " -> allowed\n")+" -> allowed\n"))
	file.Rules = f.rules
	return file, !problems.HasErrors() && len(file.Tests[0].Steps) == len(requests)
}

// test writes a test that sends requests at one time.
func (f *first) test(name string, requests ...string) error {
	file, ok := f.parse(requests...)
	name = strings.Join(strings.Fields(strings.NewReplacer("#", "", "'", "", `"`, "").Replace(name)), " ")
	for n := 2; f.names[name]; n++ {
		name = fmt.Sprintf("%s (%d)", strings.TrimSuffix(name, fmt.Sprintf(" (%d)", n-1)), n)
	}
	f.names[name] = true
	if !ok {
		fmt.Fprintf(&f.text, "\n# %s: no test: its requests need JSON, as `request FILE`\n", name)
		return nil
	}
	o, err := file.open(f.ctx, f.settings)
	if err != nil {
		return err
	}
	defer o.Close()
	fmt.Fprintf(&f.text, "\ntest %s\n", name)
	for i, request := range requests {
		step := &file.Tests[0].Steps[i]
		var got *outcome
		for range step.Times {
			got, _ = o.send(f.ctx, step)
		}
		fmt.Fprintf(&f.text, "  %s -> %s\n", request, expected(step.Method, got))
	}
	return nil
}

// expected returns what an outcome is, as a file expects it.
func expected(m flow.Method, o *outcome) string {
	text := o.Verdict
	if m == flow.Check {
		text = status(o)[0]
		if o.Reason != "allowed" {
			text += " reason=" + o.Reason
		}
	}
	if rule, ok := quote("rule=" + o.Rule); ok && o.Rule != "" {
		text += " " + rule
	}
	switch left := fact("remaining")(o); {
	case o.Verdict == "refused" && o.Rule != "":
		text += fmt.Sprintf(" retry_after=%d", o.RetryAfter)
	case m == flow.RateLimit && left != nil:
		text += " remaining=" + left[0]
	}
	return text
}

// quote returns a word as a file has it. ok is false if the format cannot have it.
func quote(text string) (word string, ok bool) {
	quoted := text == "" || strings.ContainsAny(text, " \t\r\n") || strings.ContainsAny(text[:1], `#'"`)
	switch {
	case strings.ContainsAny(text, "\r\n"):
		return text, false
	case !quoted:
		return text, true
	case !strings.Contains(text, "'"):
		return "'" + text + "'", true
	}
	return `"` + text + `"`, !strings.Contains(text, `"`)
}

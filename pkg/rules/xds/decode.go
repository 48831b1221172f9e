package xds

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// decode returns the rules of a response together with the overlay, and their problems. If one of the problems is an
// error, the set has only its generation. No content makes decode panic or run for long.
func decode(r *response, overlay poll.File, cfg *Config) (rules.Set, rules.Problems) {
	// Servers send resources in any order. Sorted, equal resources are equal rules.
	resources, problems := readResources(r)
	slices.SortStableFunc(resources, func(a, b *resource) int { return cmp.Compare(a.name, b.name) })
	set := rules.Set{Policies: map[string]*authz.Policy{}}
	added, doc := decodeOverlay(overlay, cfg)
	set.Networks = added.lists
	check := cfg.Check
	check.Networks = set.Networks
	added.merge(resources, doc)
	domains := make([]ratelimit.Domain, len(resources))
	for i, res := range resources {
		if i > 0 && res.name != "" && res.name == resources[i-1].name {
			problems = append(problems, problem(res.label, "", "two resources have the same name"))
		}
		domains[i] = res.Domain
	}
	for i, mistakes := range ratelimit.Check(domains, check) {
		for _, m := range mistakes {
			problems = append(problems, resources[i].problem(m))
		}
	}
	at := map[string]int{} // indexes into set.Domains
	for _, d := range domains {
		if i, known := at[d.Name]; known { // ratelimit.Check has reported it, unless MERGE_DOMAIN_CONFIG allows it
			set.Domains[i].Descriptors = append(set.Domains[i].Descriptors, d.Descriptors...)
			continue
		}
		at[d.Name] = len(set.Domains)
		set.Domains = append(set.Domains, d)
	}
	added.addPolicies(&set, check, doc)
	problems = append(problems, doc.Problems()...)
	if problems.HasErrors() {
		set = rules.Set{}
	}
	set.Generation = generation(r, overlay)
	return set, problems
}

// readResources reads the resources of a response that can be read.
func readResources(r *response) (resources []*resource, problems rules.Problems) {
	if r.typeURL != typeURL {
		return nil, rules.Problems{problem("response", "", "the response has resources of type "+suggest.Quoted(r.typeURL),
			"want "+suggest.Quoted(typeURL))}
	}
	read := reader{maxDescriptors, maxNames, maxWildcards, maxValues}
	for i, a := range r.resources {
		if a.typeURL != typeURL {
			problems = append(problems, problem(label("", i), "", "the resource has the type "+suggest.Quoted(a.typeURL),
				"want "+suggest.Quoted(typeURL)))
			continue
		}
		err := read.count()
		var res *resource
		if err == nil {
			res, err = read.config(a.value, i)
		}
		switch {
		// The others need not be read.
		case slices.Contains([]error{errTooMany, errLongNames, errTooManyWilds, errTooManyValues}, err):
			return nil, append(problems, problem("response", "", err.Error()))
		case err != nil:
			problems = append(problems, problem(res.label, "", err.Error()))
		default:
			resources = append(resources, res)
		}
	}
	return resources, problems
}

// problem returns a mistake in the resource as a problem.
func (res *resource) problem(m ratelimit.Mistake) strictyaml.Problem {
	p := problem(res.label, m.Path, m.Message, slices.DeleteFunc(m.Hints, func(hint string) bool { return hint == "" })...)
	p.Warning = strictyaml.Warning(m.Warning)
	if at := res.touched[descriptorPath.FindString(m.Path)]; at != "" {
		p.Hints = append(p.Hints, "the overlay changes this descriptor at "+at)
	}
	return p
}

// generation identifies the resources of a response and the overlay.
func generation(r *response, overlay poll.File) string {
	h := sha256.New()
	var texts []string
	for _, a := range r.resources {
		texts = append(texts, fmt.Sprintf("%d:%s%d:%s", len(a.typeURL), a.typeURL, len(a.value), a.value))
	}
	slices.Sort(texts)
	fmt.Fprintf(h, "%d:%s", len(r.typeURL), r.typeURL)
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	h.Write(overlay.Content)
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// maxDetail bounds the text of a refusal, because the server bounds the size of a request.
const maxDetail = 64 << 10

// detail returns the errors among problems as the text for the server, one line for each.
func detail(problems rules.Problems) string {
	var b strings.Builder
	more := 0
	for _, p := range problems.Errors() {
		line := p.File
		if p.Line > 0 {
			line += fmt.Sprintf(":%d:%d", p.Line, p.Column)
		}
		line += ": " + p.Message + "\n"
		if b.Len()+len(line) > maxDetail {
			more++
			continue
		}
		b.WriteString(line)
	}
	if more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

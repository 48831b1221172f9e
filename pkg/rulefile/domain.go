package rulefile

import (
	"maps"
	"slices"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// domainSet gathers the domains of all files.
type domainSet struct {
	merge bool
	order []*domain
}

// domain is one domain, with what is needed to check it as a whole.
type domain struct {
	name      string
	first     string // where it was first named
	nodes     []ratelimit.Node
	top       siblings
	named     map[string]bool // the limits that have a name
	replacing []replacing
	policy    *authz.Policy // nil without an authz section
	limiting  []limiting
}

// replacing is a limit that another one names in replaces.
type replacing struct {
	name   string
	at     place
	report *report
}

// add builds the rules of one file into the domain it names.
func (s *domainSet) add(root rootKeys, b builder) {
	name := root.domain.value
	d := s.find(name)
	switch {
	case root.domain.mentioned && !root.domain.set:
		d = nil // reported; the rest of the file is checked all the same
	case name == "":
		at := root.domain.at
		if at == (place{}) {
			at = place{line: 1, column: 1}
		}
		b.fail(at, "config file cannot have empty domain", "add `domain: <name>`, the domain of Envoy's rate limit filter")
		d = nil
	case d != nil && !s.merge:
		b.fail(root.domain.at, "duplicate domain "+quoted(name)+" in config file",
			"the first is at "+d.first+": put both into one file, or set MERGE_DOMAIN_CONFIG=true")
		d = nil
	case d == nil:
		d = &domain{name: name, first: b.position(root.domain.at), top: siblings{}, named: map[string]bool{}}
		s.order = append(s.order, d)
	}
	if d == nil {
		d = &domain{top: siblings{}, named: map[string]bool{}}
	}
	if name != "" && !root.authz.mentioned && len(root.descriptors.value) == 0 && root.descriptors.set == root.descriptors.mentioned {
		b.warn(root.domain.at, "domain "+quoted(name)+" has no descriptors here: this file limits nothing")
	}
	d.nodes = append(d.nodes, b.nodes(root.descriptors.value, d.top, name+".", nil)...)
	d.gather(root.descriptors.value, b.report)
	d.authorize(root.authz, b)
}

// gather remembers the names of the limits and what they replace.
func (d *domain) gather(list []descriptorKeys, r *report) {
	for _, keys := range list {
		for _, l := range append([]limitKeys{keys.rateLimit.value}, keys.limits.value...) {
			if l.name.value != "" {
				d.named[l.name.value] = true
			}
			for _, e := range l.replaces.value {
				if e.name.value != "" {
					d.replacing = append(d.replacing, replacing{name: e.name.value, at: e.name.at, report: r})
				}
			}
		}
		d.gather(keys.descriptors.value, r)
	}
}

// authorize builds the policy of a file. A domain has one, so that nobody has to guess which rule of access comes first.
func (d *domain) authorize(section given[authzKeys], b builder) {
	if !section.set {
		return
	}
	policy := b.policy(section)
	if d.policy != nil {
		b.fail(section.key, "a second `authz` for domain "+quoted(d.name), "the first is at "+d.policy.Position+": put all of it into one file; `descriptors` may be in several")
		return
	}
	d.policy = policy
	d.limiting = append(
		b.limiting(section.value.limits.value, policy.Limits), b.limiting(section.value.refused.value, policy.Refused)...)
}

func (s *domainSet) find(name string) *domain {
	for _, d := range s.order {
		if d.name == name {
			return d
		}
	}
	return nil
}

// checkReplaces warns of limits that replace a name which no limit of the domain has, in whatever file.
func (s *domainSet) checkReplaces() {
	for _, d := range s.order {
		names := slices.Sorted(maps.Keys(d.named))
		for _, e := range d.replacing {
			if !d.named[e.name] {
				e.report.warn(e.at, "no limit of domain "+quoted(d.name)+" is named "+quoted(e.name)+": there is nothing to replace", didYouMean(e.name, names))
			}
		}
	}
}

// policies returns the policies that were gathered, by domain; nil for none.
func (s *domainSet) policies() map[string]*authz.Policy {
	var policies map[string]*authz.Policy
	for _, d := range s.order {
		if d.policy == nil {
			continue
		}
		if policies == nil {
			policies = map[string]*authz.Policy{}
		}
		policies[d.name] = d.policy
	}
	return policies
}

// domains returns what was gathered.
func (s *domainSet) domains() []ratelimit.Domain {
	domains := make([]ratelimit.Domain, len(s.order))
	for i, d := range s.order {
		domains[i] = ratelimit.Domain{Name: d.name, Descriptors: d.nodes}
	}
	return domains
}

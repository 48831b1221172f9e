package rulefile

import (
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// domainSet gathers the domains of all files.
type domainSet struct {
	merge bool
	order []*domain
	// files are what each file says about its domain, and reports are theirs.
	files   []ratelimit.Domain
	reports []*report
}

// domain is one domain, with what is needed to check it as a whole.
type domain struct {
	name   string
	rules  ratelimit.Domain // of all its files
	policy *authz.Policy    // nil without an authz section
	report *report          // of the file with the policy
}

// add builds what one file says into the domain it names.
func (s *domainSet) add(root rootKeys, b builder) {
	file := ratelimit.Domain{
		Name: root.domain.value, Descriptors: b.nodes(root.descriptors.value), Position: b.position(root.domain.at),
	}
	s.files, s.reports = append(s.files, file), append(s.reports, b.report)
	d := s.find(file.Name)
	switch {
	case d == nil && file.Name != "":
		d = &domain{name: file.Name, rules: file}
		s.order = append(s.order, d)
	case d != nil && s.merge:
		d.rules.Descriptors = append(d.rules.Descriptors, file.Descriptors...)
	default: // a mistake; the rest of the file is checked all the same
		d = &domain{}
	}
	if file.Name != "" && !root.authz.mentioned && len(file.Descriptors) == 0 && root.descriptors.set == root.descriptors.mentioned {
		b.warn(root.domain.at, "domain "+quoted(file.Name)+" has no descriptors here: this file limits nothing")
	}
	d.authorize(root.authz, b.report)
}

// checkRules reports what makes no sense in the rules of all files.
func (s *domainSet) checkRules(o ratelimit.CheckOptions) {
	for i, mistakes := range ratelimit.Check(s.files, o) {
		s.reports[i].addMistakes("", mistakes)
	}
}

// authorize takes the policy of a file. A domain has one, so that it is clear which rule of access comes first.
func (d *domain) authorize(section given[authz.Policy], r *report) {
	if !section.set {
		return
	}
	policy := &section.value
	policy.Position = r.position(section.key)
	r.addMistakes("authz.", policy.Check())
	if d.policy != nil {
		r.fail(section.key, "a second `authz` for domain "+quoted(d.rules.Name), "the first is at "+d.policy.Position+": put all of it into one file; `descriptors` may be in several")
		return
	}
	d.policy, d.report = policy, r
}

// checkLeads warns of limits of policies that no rule of the domain is for, in whatever file.
func (s *domainSet) checkLeads() {
	for _, d := range s.order {
		if d.policy != nil {
			d.report.addMistakes("authz.", d.policy.CheckDomain(&d.rules))
		}
	}
}

func (s *domainSet) find(name string) *domain {
	for _, d := range s.order {
		if d.name == name {
			return d
		}
	}
	return nil
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
		domains[i] = d.rules
	}
	return domains
}

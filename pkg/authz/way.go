package authz

// Tried is a credential that a policy accepts, in the order in which it looks for them.
type Tried struct {
	Kind  string `json:"kind"`
	Place string `json:"place"`
	// Carried means that the request carries it. The policy looks for no other credential then.
	Carried bool `json:"carried"`
}

// InShadow returns the first access rule that would decide if it were enforced for the request, and why it is not; nil
// for none.
func (p *Pending) InShadow() (a *Access, why string) {
	if s := p.facts.shadow; s != nil {
		return &s.Access, s.Enforce.Explain(s.value(&p.facts))
	}
	return nil, ""
}

// Way returns how the policy has judged the request: by the access rule that matches, with its defaults, and the
// credentials up to the first one that the request carries. The rule has no Position if none matches: a request then
// needs a credential. It is nil if the request was refused before: without a policy, or for its size, host or path.
func (p *Pending) Way() (access *Access, tried []Tried) {
	f := &p.facts
	if f.access == nil {
		return nil, nil
	}
	if f.access.Require == Denied { // no credential is looked for
		return &f.access.Access, nil
	}
	for i := range p.policy.credentials {
		c := &p.policy.credentials[i]
		_, err := find(c.place, f.request, f.query)
		carried := err != errAbsent //nolint:errorlint // find returns exactly this value
		tried = append(tried, Tried{Kind: c.traits.Name, Place: c.place.String(), Carried: carried})
		if carried {
			break
		}
	}
	return &f.access.Access, tried
}

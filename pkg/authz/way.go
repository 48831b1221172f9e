package authz

// Way is how a policy has judged a request, for explanations.
type Way struct {
	// Access is the access rule that matches, with its defaults. It has no Position if none matches: a request then needs
	// a credential.
	Access Access
	// Tried are the credentials that the policy accepts, up to the first one that the request carries.
	Tried []Tried
}

// Tried is a credential that a policy has looked for.
type Tried struct {
	Kind, Place string
	Carried     bool
}

// Way returns how the policy has judged the request. It is nil if the request was refused before: without a policy, or
// for its size, host or path.
func (p *Pending) Way() *Way {
	f := &p.facts
	if f.access == nil {
		return nil
	}
	w := &Way{Access: f.access.Access}
	if w.Access.Require == Denied { // no credential is looked for
		return w
	}
	for i := range p.policy.credentials {
		c := &p.policy.credentials[i]
		_, err := find(c.place, f.request, f.query)
		carried := err != errAbsent //nolint:errorlint // find returns exactly this value
		w.Tried = append(w.Tried, Tried{Kind: c.traits.Name, Place: c.place.String(), Carried: carried})
		if carried {
			break
		}
	}
	return w
}

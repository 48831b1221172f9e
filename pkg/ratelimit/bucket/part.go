package bucket

// Split returns a request with the takes that belong to a part, and their indexes in r. Another store can decide it.
func (r *Request) Split(belongs func(take int) bool) (part Request, index []int) {
	part.At, part.Uncertain, part.Dry = r.At, r.Uncertain, r.Dry
	for i := range r.Takes {
		if belongs(i) {
			part.Takes, index = append(part.Takes, r.Takes[i]), append(index, i)
		}
	}
	return part, index
}

// Merge adds the outcome of a part to o, which has a decision for each take. index is from Split. A request is allowed
// if all its parts are, and waits for the part that waits longest.
func (o *Outcome) Merge(part *Outcome, index []int) {
	for i, take := range index {
		o.Decisions[take] = part.Decisions[i]
	}
	o.Allowed = o.Allowed && part.Allowed
	o.RetryAfter = later(o.RetryAfter, part.RetryAfter)
}

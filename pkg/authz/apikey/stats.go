package apikey

import "time"

// soon is the time before its end in which a key counts as expiring.
const soon = 7 * 24 * time.Hour

// Stats counts keys.
type Stats struct {
	// Keys is the number of all keys. A key may be in several of the other counts.
	Keys int
	// Weak is how many keys the operator chose.
	Weak int
	// Expiring is how many keys are valid now and end within 7 days.
	Expiring int
	// Foreign is how many keys have a hash of an unknown server secret, so that they never match. Outdated is how many
	// have one of the previous server secret, or a previous key in its grace that has one.
	Foreign, Outdated int
}

// Stats counts the keys of all sources.
func (k *Keys) Stats() (s Stats) {
	now, peppers := k.cfg.Now().UnixMicro(), k.cfg.Secret.peppers
	outdated := func(h *Hash) bool { return len(peppers) > 1 && h.secret == peppers[1].fingerprint }
	for _, source := range k.cfg.Sources {
		entries := source.load().entries
		s.Keys += len(entries)
		for i := range entries {
			e := &entries[i]
			if e.weak {
				s.Weak++
			}
			if e.expires != 0 && e.expires-now <= soon.Microseconds() && e.valid(now) == nil {
				s.Expiring++
			}
			old, p := outdated(&e.hash), e.previous
			if !old && e.hash.secret != peppers[0].fingerprint {
				s.Foreign++
			}
			if old || p != nil && now < p.ValidUntil.UnixMicro() && outdated(&p.Hash) {
				s.Outdated++
			}
		}
	}
	return s
}

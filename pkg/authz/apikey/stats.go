package apikey

import (
	"slices"
	"time"
)

// soon is how long before its end a key is counted as one that expires soon.
const soon = 7 * 24 * time.Hour

// Stats counts keys. Nothing in it tells one key from another.
type Stats struct {
	// Keys are all that could be used now or later; the other counts are not exclusive.
	Keys int
	// Weak are those that the operator chose.
	Weak int
	// Expiring are valid now and will end within 7 days.
	Expiring int
	// Foreign were made with an unknown server secret and never match; Outdated with the previous one.
	Foreign, Outdated int
}

// Stats counts the keys of all sources.
func (k *Keys) Stats() (s Stats) {
	now, peppers := k.cfg.Now().UnixMicro(), k.cfg.Secret.peppers
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
			switch slices.IndexFunc(peppers, func(p *pepper) bool { return p.fingerprint == e.hash.made }) {
			case -1:
				s.Foreign++
			case 1:
				s.Outdated++
			}
		}
	}
	return s
}

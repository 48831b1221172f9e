package apikey

import "time"

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
	// Foreign were made with a server secret that this service does not know, so that they never match; Outdated with the
	// previous one, so that they end when that is taken away.
	Foreign, Outdated int
}

// Stats counts the keys of all sources.
func (k *Keys) Stats() (s Stats) {
	now := k.cfg.Now().UnixMicro()
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
			switch {
			case !k.cfg.Secret.Knows(e.hash):
				s.Foreign++
			case !k.cfg.Secret.Current(e.hash):
				s.Outdated++
			}
		}
	}
	return s
}

package apikey

import "time"

// soon is how long before its end a key is counted as one that expires soon.
const soon = 7 * 24 * time.Hour

// Stats counts keys. Nothing in it tells one key from another.
type Stats struct {
	// Keys are all that could be used now or later; the other counts are not exclusive.
	Keys int
	// Weak are those of somebody's choice.
	Weak int
	// Disabled, Expired and NotYet are refused at the moment.
	Disabled, Expired, NotYet int
	// Expiring are valid now and will end within 7 days.
	Expiring int
	// Rotating have a previous hash that is still valid.
	Rotating int
	// Foreign were made with a server secret that this service does not know, so that they never match; Outdated with the
	// previous one, so that they end when that is taken away.
	Foreign, Outdated int
}

// Stats counts the keys of all sources.
func (k *Keys) Stats() Stats {
	var s Stats
	now := k.cfg.Now().UnixMicro()
	for _, source := range k.cfg.Sources {
		for e, weak := range source.load().all {
			s.add(k.cfg.Secret, e, weak, now)
		}
	}
	return s
}

func (s *Stats) add(secret *Secret, e *entry, weak bool, now int64) {
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	s.Keys++
	expired, early := e.expires != 0 && now >= e.expires, now < e.notBefore
	count(&s.Weak, weak)
	count(&s.Disabled, e.disabled)
	count(&s.Expired, expired)
	count(&s.NotYet, early)
	count(&s.Expiring, e.expires != 0 && !expired && !early && !e.disabled && e.expires-now <= soon.Microseconds())
	count(&s.Rotating, e.previous != nil && now < e.previous.validUntil)
	count(&s.Foreign, !secret.Knows(e.hash))
	count(&s.Outdated, secret.Knows(e.hash) && !secret.Current(e.hash))
}

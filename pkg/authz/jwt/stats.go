package jwt

import (
	"maps"
	"slices"
	"time"
)

// SourceStats are the figures of a source of keys at one moment.
type SourceStats struct {
	// Name is the path or URL.
	Name string
	// Keys is how many keys are trusted.
	Keys int
	// LastSuccess is when the keys were last read without an error; zero for never.
	LastSuccess time.Time
	// Failures is how many readings failed.
	Failures uint64
}

// Sources returns the figures of the active sources of keys, sorted by name.
func (v *Verifier) Sources() (list []SourceStats) {
	sources := v.policy.Load().sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		list = append(list, sources[name].stats())
	}
	return list
}

func (s *source) stats() SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := SourceStats{Name: s.name, Failures: s.failures}
	if good := s.good.Load(); good != nil {
		stats.LastSuccess = good.read
		if keys := s.keys(s.cfg.Now()); keys != nil {
			stats.Keys = len(keys.keys)
		}
	}
	return stats
}

package jwt

import (
	"cmp"
	"slices"
	"time"
)

// Stats are the figures of a Verifier at one moment.
type Stats struct {
	// Sources are the sources of keys in force, by name.
	Sources []SourceStats
	// Cached is how many verified tokens are known, expired ones that nobody has asked for among them.
	Cached int
}

// SourceStats are the figures of a source of keys.
type SourceStats struct {
	// Name is the path or URL.
	Name string
	// Keys is how many keys are trusted.
	Keys int
	// LastSuccess is when the keys were last read without an error; zero for never.
	LastSuccess time.Time
	// Failures is how often they could not be read.
	Failures uint64
}

// Stats returns the figures.
func (v *Verifier) Stats() Stats {
	p := v.policy.Load()
	stats := Stats{Cached: v.cache.len()}
	for name, s := range p.sources {
		stats.Sources = append(stats.Sources, s.stats(name))
	}
	slices.SortFunc(stats.Sources, func(a, b SourceStats) int { return cmp.Compare(a.Name, b.Name) })
	return stats
}

func (s *source) stats(name string) SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := SourceStats{Name: name, Failures: s.failures}
	if good := s.good.Load(); good != nil {
		stats.LastSuccess = good.read
		if keys := s.keys(s.cfg.Now()); keys != nil {
			stats.Keys = len(keys.keys)
		}
	}
	return stats
}

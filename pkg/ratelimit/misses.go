package ratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

const (
	// maxUnknownDomains is how many domains without rules are counted by their names. Callers can send any name.
	maxUnknownDomains = 20
	// maxShapes is how many domains and descriptors are remembered, so that each is reported once in missInterval.
	maxShapes    = 256
	missInterval = time.Hour
)

// MissCounters count what no rule matched in one domain. They only grow, and are safe for concurrent use.
type MissCounters struct {
	// UnknownDomain counts requests for the domain while it has no rules, Unmatched descriptors that no rule matched.
	UnknownDomain, Unmatched atomic.Uint64
}

// misses counts and reports requests that no rule matches. It is safe for concurrent use.
type misses struct {
	seed maphash.Seed
	mu   sync.RWMutex
	// domains has otherValue for further domains without rules; unknown is the number of those with a name of their own.
	domains map[string]*MissCounters
	unknown int
	// reported are the times of the last report, by hash of domain and keys. Until full, there is no place for others.
	reported map[uint64]time.Time
	full     time.Time
}

func newMisses() *misses {
	return &misses{
		seed: maphash.MakeSeed(), domains: map[string]*MissCounters{}, reported: map[uint64]time.Time{},
	}
}

// of returns the counters of a domain.
func (m *misses) of(domain string, hasRules bool) *MissCounters {
	m.mu.RLock()
	c := m.domains[domain]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !hasRules && m.domains[domain] == nil {
		if m.unknown == maxUnknownDomains || len(domain) > maxMetricValue || !utf8.ValidString(domain) {
			domain = otherValue
		} else {
			m.unknown++
		}
	}
	if c = m.domains[domain]; c == nil {
		c = new(MissCounters)
		m.domains[strings.Clone(domain)] = c // the text of a query does not last
	}
	return c
}

// isNew reports whether a miss in a domain, of entries with these keys, has to be reported now.
func (m *misses) isNew(domain string, entries []descriptors.Entry, now time.Time) bool {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(domain)
	for i := range entries {
		_ = h.WriteByte(0xFF) // no text in UTF-8 has this byte
		_, _ = h.WriteString(entries[i].Key)
	}
	shape := h.Sum64()
	m.mu.RLock()
	last, known := m.reported[shape]
	isNew := now.Sub(last) >= missInterval && (known || !now.Before(m.full))
	m.mu.RUnlock()
	if !isNew {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.reported[shape]) < missInterval {
		return false // another request has just reported it
	}
	if _, known = m.reported[shape]; !known && len(m.reported) >= maxShapes {
		oldest := now
		for other, at := range m.reported {
			if now.Sub(at) >= missInterval {
				delete(m.reported, other)
			} else if at.Before(oldest) {
				oldest = at
			}
		}
		if len(m.reported) >= maxShapes {
			m.full = oldest.Add(missInterval)
			return false
		}
	}
	m.reported[shape] = now
	return true
}

// miss counts and reports a descriptor that no rule matches, and a request for a domain without rules: d is then nil.
func (l *Limiter) miss(rules *Rules, domain string, d *descriptors.Descriptor) {
	if l.dry {
		return
	}
	var entries []descriptors.Entry
	if c := l.misses.of(domain, d != nil); d != nil {
		entries = d.Entries
		c.Unmatched.Add(1)
	} else {
		c.UnknownDomain.Add(1)
	}
	if l.cfg.Missed != nil && l.misses.isNew(domain, entries, time.Now()) {
		l.cfg.Missed(rules, domain, entries)
	}
}

// EachMiss calls f with the counters of each domain with rules, and of domains without rules: the first
// maxUnknownDomains by name, the others together as "other".
func (l *Limiter) EachMiss(f func(domain string, c *MissCounters)) {
	if rules := l.cfg.Rules(); rules != nil {
		for _, domain := range rules.Domains() {
			l.misses.of(domain, true)
		}
	}
	l.misses.mu.RLock()
	defer l.misses.mu.RUnlock()
	for domain, c := range l.misses.domains {
		f(domain, c)
	}
}

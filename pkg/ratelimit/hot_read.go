package ratelimit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"time"
)

// HotKey is a key that is hot, near its limit or over it: a bucket of a limit. Its numbers are what this process has
// seen at the last decision on it.
type HotKey struct {
	// Domain is empty for a limit that a request has brought, whose rule is "override".
	Domain string `json:"domain,omitempty"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	// Entries are those of a request to the bucket: KEY=VALUE,... The end of a long text is a hash.
	Entries string `json:"entries,omitempty"`
	// ID stands for the key. It is a hash with a seed of the process, so that a reader cannot find values by trying some.
	ID     string `json:"id"`
	Shadow bool   `json:"shadow,omitempty"`
	State  string `json:"state"`
	// Rate is in requests a second, over the last 10 to 20 s. With a probability of 95 %, its error is at most RateError.
	Rate      float64 `json:"rate"`
	RateError float64 `json:"rate_error"`
	// Used of Capacity hits are in use until Reset.
	Used     int64     `json:"used"`
	Capacity int64     `json:"capacity"`
	Reset    time.Time `json:"reset"`
	// DeniedSince is the first denial of the present run, and Denied the number of denials since.
	DeniedSince time.Time `json:"denied_since,omitzero"`
	Denied      uint64    `json:"denied,omitempty"`
	// Replicas are the processes that have seen the key, if several were asked.
	Replicas []string `json:"replicas,omitempty"`
}

// The states of a key: in a run of denials, above NearLimitRatio, or below it.
const (
	HotOver = "over"
	HotNear = "near"
	HotOnly = "hot"
)

// HotKeys are the keys of a limiter that are hot, near their limit or over it.
type HotKeys struct {
	Keys []HotKey `json:"keys"`
	// Every is how many requests are counted by one of them at present, for the rates.
	Every uint32 `json:"every"`
	// Forgotten is how many keys over their limit others have replaced.
	Forgotten uint64 `json:"forgotten"`
}

// Hot returns the keys that are hot, near their limit or over it: those over it first, then the hottest.
func (l *Limiter) Hot() HotKeys {
	h, now := l.sketch, new(Rounds).time(l.cfg.Now)
	hot := HotKeys{Keys: []HotKey{}, Every: h.every.Load(), Forgotten: h.forgotten.Load()}
	limits := map[*Counters]HotKey{&l.totals.RequestLimits: {Rule: "override", Limit: "override", Shadow: l.cfg.Shadow}}
	for _, rule := range l.activeRules() {
		for _, c := range rule.counted() {
			shadow := c.Shadow || l.cfg.Shadow
			limits[c.Counters] = HotKey{Domain: rule.Domain, Rule: rule.Name, Limit: c.Policy, Shadow: shadow}
		}
	}
	for i := range h.sets {
		hot.Keys = h.sets[i].list(hot.Keys, limits, now, h.every.Load(), l.cfg.NearLimitRatio)
	}
	slices.SortFunc(hot.Keys, func(a, b HotKey) int { return CompareHot(&a, &b) })
	return hot
}

// CompareHot is negative if key a matters more to an operator than b: it is nearer to its limit, or hotter.
func CompareHot(a, b *HotKey) int {
	// The order of the states is the reverse of their order as texts.
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.ID, b.ID))
}

// list appends the keys of the set that belong to one of the limits.
func (s *hotSet) list(keys []HotKey, limits map[*Counters]HotKey, at int64, every uint32, ratio float32) []HotKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halve(at)
	seconds := float64(hotHalf+at%hotHalf) / 1e6 // a steady rate has this many seconds in its count
	for i := range s.entries {
		e := &s.entries[i]
		key, ok := limits[e.counters.Load()]
		until := e.until.Load()
		if !ok || s.hashes[i].Load() == 0 || e.hits == 0 && at >= until {
			continue
		}
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, s.hashes[i].Load()))
		key.Entries, key.ID = string(e.text[:e.length]), hex.EncodeToString(sum[:6])
		key.Rate = float64(e.hits) / seconds
		key.RateError = (float64(e.err) + 2*math.Sqrt(float64(e.hits)*float64(every-1))) / seconds
		key.Capacity, key.State = e.capacity.Load(), HotOnly
		if at < until {
			key.Used, key.Reset = key.Capacity-e.remaining.Load(), time.UnixMicro(until).UTC()
			if key.Used > int64(float32(key.Capacity)*ratio) {
				key.State = HotNear
			}
		}
		if e.isOver(at) {
			key.State = HotOver
			key.DeniedSince, key.Denied = time.UnixMicro(e.since.Load()).UTC(), e.denied.Load()
		}
		keys = append(keys, key)
	}
	return keys
}

// DeniedSince returns the first denial of the present run of a bucket, and the number of denials since. It returns the
// zero time and 0 if the last request was allowed, or if this process has not seen a denial.
func (l *Limiter) DeniedSince(bucket string) (since time.Time, denied uint64) {
	run, denied := l.sketch.run(bucket, new(Rounds).time(l.cfg.Now))
	if run != 0 {
		since = time.UnixMicro(run).UTC()
	}
	return since, denied
}

// ShadowLimit counts what a limit in shadow would have denied since the process started or first had the limit.
type ShadowLimit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	// Requests are those of the rule, in descriptors; Denied of them would have been denied by this limit.
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
}

// ShadowLimits returns the limits in shadow, which are all with Config.Shadow, in the order of the rules.
func (l *Limiter) ShadowLimits() []ShadowLimit {
	list := []ShadowLimit{}
	for _, rule := range l.activeRules() {
		requests := rule.Sum().Requests
		for _, limit := range rule.counted() {
			if !rule.Unlimited && (limit.Shadow || l.cfg.Shadow) {
				of := rule.sumOf(limit)
				list = append(list, ShadowLimit{rule.Domain, rule.Name, limit.Policy, requests, of.Denied + of.ShadowDenied})
			}
		}
	}
	return list
}

func (l *Limiter) activeRules() []*Rule {
	if rules := l.cfg.Rules(); rules != nil {
		return rules.All()
	}
	return nil
}

// allCounters returns the counters of a limit, with any values of requests.
func (r *Rule) allCounters(l *RuleLimit) []*Counters {
	if r.byValue == nil {
		return []*Counters{l.Counters}
	}
	r.byValue.mu.RLock()
	defer r.byValue.mu.RUnlock()
	var all []*Counters
	for _, limits := range r.byValue.named {
		all = append(all, &limits[l.index])
	}
	return all
}

package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Top has the keys that are hot, near their limit or over it: GET /top, and `extauthz buckets top`.
type Top struct {
	ratelimit.HotKeys
	// ClientValues means that keys show their entries (LOG_CLIENT_VALUES). Otherwise each replica has its own IDs.
	ClientValues bool `json:"client_values"`
}

const hidden = "Keys are hashed: the service shows them with LOG_CLIENT_VALUES=true."

// NewTop returns the keys of a limiter.
func NewTop(l *ratelimit.Limiter, show ratelimit.ClientValues) *Top {
	t := &Top{l.Hot(), bool(show)}
	for i := range t.Keys {
		if k := &t.Keys[i]; show {
			k.Entries = rules.Mask(k.Entries)
		} else {
			k.Entries = ""
		}
	}
	return t
}

// Merge adds the answer of a replica. Its address is "" if it is the only one.
func (t *Top) Merge(other *Top, replica string) {
	t.Every, t.Forgotten = max(t.Every, other.Every), t.Forgotten+other.Forgotten
	t.ClientValues = t.ClientValues || other.ClientValues
	t.Keys = mergeKeys(t.Keys, other.Keys, replica)
}

// mergeKeys adds keys of a replica. Rates and denials of the same key add up.
func mergeKeys(keys, others []ratelimit.HotKey, replica string) []ratelimit.HotKey {
	nameOf := func(k *ratelimit.HotKey) [4]string {
		return [...]string{k.Domain, k.Rule, k.Limit, cmp.Or(k.Entries, k.ID)}
	}
	keys, known := slices.Grow(keys, len(others)+1), map[[4]string]int{} // never nil: in JSON it is a list
	for i := range keys {
		known[nameOf(&keys[i])] = i
	}
	for _, other := range others {
		if replica != "" {
			other.Replicas = []string{replica}
		}
		i, ok := known[nameOf(&other)]
		if !ok {
			keys = append(keys, other)
			continue
		}
		k := &keys[i]
		if ratelimit.CompareHot(&other, k) < 0 {
			k.State = other.State
		}
		k.Rate, k.RateError, k.Denied = k.Rate+other.Rate, k.RateError+other.RateError, k.Denied+other.Denied
		k.Used, k.Capacity = max(k.Used, other.Used), max(k.Capacity, other.Capacity)
		k.DeniedSince, k.Replicas = earlier(k.DeniedSince, other.DeniedSince), append(k.Replicas, other.Replicas...)
		if other.Reset.After(k.Reset) {
			k.Reset = other.Reset
		}
	}
	slices.SortStableFunc(keys, func(a, b ratelimit.HotKey) int { return ratelimit.CompareHot(&a, &b) })
	return keys
}

// earlier returns the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Rows returns the keys as a table, below lines on what it does not show.
func (t *Top) Rows() (rows [][]string) {
	if t.Every > 1 {
		rows = append(rows, []string{fmt.Sprintf("Rates are counted from one of %d requests.", t.Every)})
	}
	if t.Forgotten > 0 {
		rows = append(rows, []string{fmt.Sprintf("Too many keys were over a limit: %d are forgotten.", t.Forgotten)})
	}
	if !t.ClientValues {
		rows = append(rows, []string{hidden})
	}
	rows = append(rows, []string{"STATE", "RULE", "LIMIT", "USED", "REQUESTS/S", "DENIED SINCE", "DENIALS", "KEY"})
	for i := range t.Keys {
		k := &t.Keys[i]
		state := k.State
		if k.Shadow {
			state += " (shadow)"
		}
		rows = append(rows, []string{state, k.Rule, k.Limit, fmt.Sprintf("%d of %d", k.Used, k.Capacity),
			fmt.Sprintf("%.1f ±%.1f", k.Rate, k.RateError), since(k.DeniedSince), strconv.FormatUint(k.Denied, 10), name(k)})
	}
	return rows
}

// name names a key on a terminal, without what that would take for a command.
func name(k *ratelimit.HotKey) string {
	name := cmp.Or(k.Entries, k.ID)
	if len(k.Replicas) > 0 {
		name += " at " + strings.Join(k.Replicas, ", ")
	}
	return suggest.Printable(name, len(name))
}

func since(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format(time.RFC3339)
}

// Shadow has the limits in shadow, and the keys that they would deny now: GET /shadow, and `extauthz shadow`.
type Shadow struct {
	Limits []ratelimit.ShadowLimit `json:"limits"`
	Top
}

// NewShadow returns the limits of a limiter that are in shadow.
func NewShadow(l *ratelimit.Limiter, show ratelimit.ClientValues) *Shadow {
	s := &Shadow{l.ShadowLimits(), *NewTop(l, show)}
	s.Keys = slices.DeleteFunc(s.Keys, func(k ratelimit.HotKey) bool {
		return !k.Shadow || k.State != ratelimit.HotOver
	})
	return s
}

// Merge adds the answer of a replica, as Top.Merge.
func (s *Shadow) Merge(other *Shadow, replica string) {
	s.Top.Merge(&other.Top, replica)
	for _, l := range other.Limits {
		i := slices.IndexFunc(s.Limits, func(of ratelimit.ShadowLimit) bool {
			return of.Domain == l.Domain && of.Rule == l.Rule && of.Limit == l.Limit
		})
		if i < 0 {
			s.Limits = append(s.Limits, l)
			continue
		}
		s.Limits[i].Requests += l.Requests
		s.Limits[i].Denied += l.Denied
	}
}

// Rows returns the limits as a table. Below each are its keys, if the service shows them.
func (s *Shadow) Rows() (rows [][]string) {
	switch {
	case len(s.Limits) == 0:
		return [][]string{{"No limit is in shadow."}}
	case !s.ClientValues:
		rows = append(rows, []string{hidden})
	}
	rows = append(rows, []string{"RULE", "LIMIT", "WOULD BE DENIED", "NOW SINCE", "KEYS NOW"})
	for _, l := range s.Limits {
		var keys [][]string
		begin, n := time.Time{}, 0
		for i := range s.Keys {
			k := &s.Keys[i]
			if k.Domain != l.Domain || k.Rule != l.Rule || k.Limit != l.Limit {
				continue
			}
			n, begin = n+1, earlier(begin, k.DeniedSince)
			if s.ClientValues {
				keys = append(keys, []string{"", "", strconv.FormatUint(k.Denied, 10), since(k.DeniedSince), name(k)})
			}
		}
		share := 100 * float64(l.Denied) / max(1, float64(l.Requests))
		rows = append(rows, []string{l.Rule, l.Limit, fmt.Sprintf("%d of %d (%.1f %%)", l.Denied, l.Requests, share),
			since(begin), strconv.Itoa(n)})
		rows = append(rows, keys...)
	}
	return rows
}

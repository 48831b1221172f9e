package apikey

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Source holds the keys of one file, or of Redis. Its zero value holds none. It is safe for concurrent use.
type Source struct {
	table atomic.Pointer[table]
	end   atomic.Int64 // in µs since 1970; 0 for none
}

// Replace replaces all records for every Check that begins later. Of two with the same id, or of two weak ones with the
// same key, the first counts. They must have passed Record.Err. If records have a Version, Replace does not take
// older records that were restored, but keeps the newer ones, and returns their ids. Calls must not overlap.
func (s *Source) Replace(records []Record) (outdated []string) {
	next, outdated := s.load().next(records)
	s.table.Store(next)
	return outdated
}

// Older returns the first record that is older than the active key with its id, and the Version of that key.
func (s *Source) Older(records []Record) (older *Record, active int64) {
	t := s.load()
	for i := range records {
		if e := t.find(records[i].ID); e != nil && records[i].Version < e.version {
			return &records[i], e.version
		}
	}
	return nil, 0
}

// Restore replaces all records as Replace does, but also takes older records.
func (s *Source) Restore(records []Record) {
	next, _ := noKeys.next(records)
	s.table.Store(next)
}

// Len returns how many keys there are.
func (s *Source) Len() int { return len(s.load().entries) }

// EndAt sets from when on Check returns credential.ErrUnavailable for keys of the source. The zero time is never.
func (s *Source) EndAt(t time.Time) { s.end.Store(micros(t)) }

func (s *Source) ended(now time.Time) bool {
	end := s.end.Load()
	return end != 0 && now.UnixMicro() >= end
}

// Common returns the number of ids that both sources have, and one of them.
func (s *Source) Common(other *Source) (count int, example string) {
	these, others := s.load(), other.load()
	compare := func(id string) {
		if others.find(id) != nil {
			count, example = count+1, id
		}
	}
	for id := range these.strong {
		compare(string(id[:]))
	}
	for id := range these.weak {
		compare(id)
	}
	return count, example
}

func (s *Source) load() *table {
	if t := s.table.Load(); t != nil {
		return t
	}
	return noKeys
}

// table is a set of keys that does not change. To save memory, it has small numbers, and keys share equal texts.
type table struct {
	strong  map[publicPart]uint32 // by id; an array needs no pointer
	weak    map[string]uint32     // by id
	ids     map[Hash]string       // of weak keys
	entries []entry
	newest  int64 // the largest Version in this table and all previous ones
	// owners has the limits of owners. Only limits reads it.
	owners map[string]*ratelimit.LimitSpec
	once   sync.Once
}

type publicPart [idLength]byte

// noKeys is never changed.
var noKeys = newTable(0)

// entry is the part of a record that Check needs. Times are in µs since 1970; 0 is no bound.
type entry struct {
	hash               Hash
	disabled, weak     bool
	previous           *Previous
	owner, plan        string
	labels             []label
	scopes             []string
	notBefore, expires int64
	limit              *ratelimit.LimitSpec
	version            int64
}

type label struct{ name, value string }

func newTable(size int) *table {
	return &table{
		strong: make(map[publicPart]uint32, size), weak: map[string]uint32{}, ids: map[Hash]string{},
		entries: make([]entry, 0, size),
	}
}

// next returns the table that follows this one. outdated are the ids of older records that were restored: their Version
// is neither the one in this table, nor newer than all that were ever in it. Their entries stay as they are.
func (t *table) next(records []Record) (next *table, outdated []string) {
	next = newTable(len(records))
	next.newest = t.newest
	b := newBuilder()
	for i := range records {
		r := &records[i]
		next.newest = max(next.newest, r.Version)
		old := t.find(r.ID)
		if r.Version > t.newest || t.newest == 0 || old != nil && old.version == r.Version {
			next.add(r.ID, b.entry(r))
			continue
		}
		if old != nil {
			next.add(r.ID, *old)
		}
		outdated = append(outdated, r.ID)
	}
	return next, outdated
}

// add adds an entry, unless the table has one with its id, or has the same weak key.
func (t *table) add(id string, e entry) {
	_, taken := t.ids[e.hash]
	switch i := uint32(len(t.entries)); {
	case t.find(id) != nil || e.weak && taken:
		return
	case e.weak:
		t.weak[id], t.ids[e.hash] = i, id
	default:
		t.strong[publicPart([]byte(id))] = i
	}
	t.entries = append(t.entries, e)
}

// find returns the entry with an id, nil for none.
func (t *table) find(id string) *entry {
	if len(id) == idLength {
		if i, ok := t.strong[publicPart([]byte(id))]; ok {
			return &t.entries[i]
		}
	}
	if i, ok := t.weak[id]; ok {
		return &t.entries[i]
	}
	return nil
}

// limits returns the limit of the first key of each owner that has one. It is made when it is first needed.
func (t *table) limits() map[string]*ratelimit.LimitSpec {
	t.once.Do(func() {
		t.owners = map[string]*ratelimit.LimitSpec{}
		for i := range t.entries {
			if e := &t.entries[i]; e.limit != nil && !e.disabled && t.owners[e.owner] == nil {
				t.owners[e.owner] = e.limit
			}
		}
	})
	return t.owners
}

// weakID returns the id of the weak key that has one of the hashes, "" for none.
func (t *table) weakID(c *candidates) string {
	for _, hash := range c.hashes[:c.count] {
		if id := t.ids[hash]; id != "" {
			return id
		}
	}
	return ""
}

// valid returns why a key is not valid at a time, nil if it is valid.
func (e *entry) valid(at int64) error {
	switch {
	case e.disabled:
		return credential.ErrDisabled
	case e.expires != 0 && at >= e.expires:
		return credential.ErrExpired
	case at < e.notBefore:
		return credential.ErrNotYet
	}
	return nil
}

// identity returns the identity of the key's owner, or the error of valid.
func (e *entry) identity(id string, now time.Time) (credential.Identity, error) {
	if err := e.valid(now.UnixMicro()); err != nil {
		return credential.Identity{}, err
	}
	who := credential.Identity{
		Method: Name, Owner: e.owner, Plan: e.plan, KeyID: id, Scopes: slices.Clip(e.scopes), Limit: e.limit,
	}
	if len(e.labels) > 0 { // an entry has a list, which takes a fifth of the memory of a map
		who.Labels = make(map[string]string, len(e.labels))
		for _, l := range e.labels {
			who.Labels[l.name] = l.value
		}
	}
	return who, nil
}

// builder makes entries that share equal texts, lists of scopes and limits.
type builder struct {
	texts  map[string]string
	scopes map[string][]string
	limits map[ratelimit.LimitSpec]*ratelimit.LimitSpec
}

func newBuilder() *builder {
	return &builder{map[string]string{}, map[string][]string{}, map[ratelimit.LimitSpec]*ratelimit.LimitSpec{}}
}

func (b *builder) entry(r *Record) entry {
	e := entry{
		hash: r.Hash, disabled: r.Disabled, weak: r.Weak,
		owner: r.Owner, plan: b.text(r.Plan), scopes: b.scopeList(r.Scopes),
		notBefore: micros(r.NotBefore), expires: micros(r.Expires), version: r.Version, previous: r.Previous,
	}
	if len(r.Labels) > 0 {
		e.labels = make([]label, 0, len(r.Labels))
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			e.labels = append(e.labels, label{b.text(name), b.text(r.Labels[name])})
		}
	}
	if r.Limit != nil {
		e.limit = b.limits[*r.Limit]
		if e.limit == nil {
			limit := *r.Limit
			e.limit, b.limits[limit] = &limit, &limit
		}
	}
	return e
}

// text returns the shared copy of a text.
func (b *builder) text(text string) string {
	if shared, known := b.texts[text]; known {
		return shared
	}
	b.texts[text] = text
	return text
}

func (b *builder) scopeList(scopes []string) []string {
	if len(scopes) == 0 {
		return nil
	}
	id := strings.Join(scopes, " ") // no scope has a space
	if b.scopes[id] == nil {
		shared := make([]string, len(scopes))
		for i, scope := range scopes {
			shared[i] = b.text(scope)
		}
		b.scopes[id] = shared
	}
	return b.scopes[id]
}

// micros returns a time in µs since 1970, 0 for no time. A time before 1970 becomes 1, which is long past, too.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, t.UnixMicro())
}

package apikey

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Source holds the keys of one place: a file, or Redis. Its zero value holds none. It is safe for concurrent use.
type Source struct {
	table atomic.Pointer[table]
	end   atomic.Int64 // in µs since 1970; 0 for none
}

// Replace replaces all records, at once for every Check that begins from then on. Of two with the same id, or of two weak ones
// with the same key, the first counts. They must have passed Record.Check. Where records have a Version, one that was put back
// is not taken: the record that it would replace stays. Replace returns the ids of such records. Calls must not overlap.
func (s *Source) Replace(records []Record) (outdated []string) {
	next, outdated := newTable(records, s.load())
	s.table.Store(next)
	return outdated
}

// Update adds records, or puts them in the place of those with the same ids, at once for every Check that begins from then on. The
// other records stay. It takes each Version. Calls must overlap neither each other nor those of Replace.
func (s *Source) Update(records []Record) {
	last := s.load()
	next := &table{index: maps.Clone(last.index), entries: slices.Clone(last.entries), weak: maps.Clone(last.weak), newest: last.newest}
	if next.index == nil {
		next.index, next.weak = map[publicPart]uint32{}, map[Hash]*weakEntry{}
	}
	b := newBuilder()
	for i := range records {
		r := &records[i]
		maps.DeleteFunc(next.weak, func(_ Hash, e *weakEntry) bool { return e.id == r.ID })
		if e := next.strong(r.ID); e != nil && !r.Weak {
			*e = b.entry(r)
			continue
		}
		next.add(r, b)
	}
	s.table.Store(next)
}

// Len returns how many keys there are.
func (s *Source) Len() int {
	t := s.load()
	return len(t.entries) + len(t.weak)
}

// EndAt sets the time from which on the source cannot be asked: Check then returns authz.ErrUnavailable for every key that no
// other source has. The zero time is no end.
func (s *Source) EndAt(t time.Time) { s.end.Store(micros(t)) }

func (s *Source) ended(now time.Time) bool {
	end := s.end.Load()
	return end != 0 && now.UnixMicro() >= end
}

// IDs calls yield with the id of each key, in no order.
func (s *Source) IDs(yield func(id string) bool) {
	t := s.load()
	for id := range t.index {
		if !yield(string(id[:])) {
			return
		}
	}
	for _, e := range t.weak {
		if !yield(e.id) {
			return
		}
	}
}

// Has reports whether there is a key with this id.
func (s *Source) Has(id string) bool {
	t := s.load()
	if t.strong(id) != nil {
		return true
	}
	for _, e := range t.weak {
		if e.id == id {
			return true
		}
	}
	return false
}

func (s *Source) load() *table {
	if t := s.table.Load(); t != nil {
		return t
	}
	return &table{}
}

// table is a set of keys, made once and then only read. It is made for hundreds of thousands of them: an index of small
// numbers into one slice, and texts that many keys share are there once.
type table struct {
	index   map[publicPart]uint32
	entries []entry
	weak    map[Hash]*weakEntry
	newest  int64 // the largest Version in this table and those before it
}

type publicPart [idLength]byte

// entry is what a Check needs of a record. Times are in µs since 1970; 0 is no bound.
type entry struct {
	hash               Hash
	disabled           bool
	previous           *previousEntry
	owner, plan        string
	labels             []label
	scopes             []string
	notBefore, expires int64
	limit              *ratelimit.LimitSpec
	version            int64
}

type previousEntry struct {
	hash       Hash
	validUntil int64
}

// weakEntry is one without a public part.
type weakEntry struct {
	id string
	entry
}

type label struct{ name, value string }

// newTable returns a table of the records that comes after last. outdated are the ids of records with a Version that is neither
// the one in last nor newer than all that were ever in it: an older record was restored. The entry in last stays in the
// place of such a record.
func newTable(records []Record, last *table) (t *table, outdated []string) {
	t = &table{
		index: make(map[publicPart]uint32, len(records)), entries: make([]entry, 0, len(records)), weak: map[Hash]*weakEntry{},
		newest: last.newest,
	}
	b := newBuilder()
	lastWeak := last.weakByName()
	for i := range records {
		r := &records[i]
		t.newest = max(t.newest, r.Version)
		strong, weak := last.strong(r.ID), lastWeak[r.ID]
		switch {
		case r.Version > last.newest || last.newest == 0 || strong != nil && strong.version == r.Version || weak != nil && weak.version == r.Version:
			t.add(r, b)
			continue
		case strong != nil:
			t.addStrong(publicPart([]byte(r.ID)), *strong)
		case weak != nil:
			t.addWeak(weak)
		}
		outdated = append(outdated, r.ID)
	}
	return t, outdated
}

func (t *table) weakByName() map[string]*weakEntry {
	byName := make(map[string]*weakEntry, len(t.weak))
	for _, e := range t.weak {
		byName[e.id] = e
	}
	return byName
}

func (t *table) add(r *Record, b *builder) {
	if r.Weak {
		t.addWeak(&weakEntry{r.ID, b.entry(r)})
		return
	}
	t.addStrong(publicPart([]byte(r.ID)), b.entry(r))
}

func (t *table) addStrong(id publicPart, e entry) {
	if _, taken := t.index[id]; !taken {
		t.index[id] = uint32(len(t.entries))
		t.entries = append(t.entries, e)
	}
}

func (t *table) addWeak(e *weakEntry) {
	if t.weak[e.hash] == nil {
		t.weak[e.hash] = e
	}
}

// strong returns the entry with a public id, nil for none.
func (t *table) strong(id string) *entry {
	if len(id) != idLength {
		return nil
	}
	i, ok := t.index[publicPart([]byte(id))]
	if !ok {
		return nil
	}
	return &t.entries[i]
}

// all calls yield with each entry.
func (t *table) all(yield func(*entry, bool) bool) {
	for i := range t.entries {
		if !yield(&t.entries[i], false) {
			return
		}
	}
	for _, e := range t.weak {
		if !yield(&e.entry, true) {
			return
		}
	}
}

// identity is who has the key, or why it is of no use now.
func (e *entry) identity(id string, now time.Time) (authz.Identity, error) {
	at := now.UnixMicro()
	switch {
	case e.disabled:
		return authz.Identity{}, authz.ErrDisabled
	case e.expires != 0 && at >= e.expires:
		return authz.Identity{}, authz.ErrExpired
	case e.notBefore != 0 && at < e.notBefore:
		return authz.Identity{}, authz.ErrNotYet
	}
	who := authz.Identity{
		Method: authz.MethodAPIKey, Owner: e.owner, Plan: e.plan, KeyID: id, Scopes: slices.Clip(e.scopes), Limit: e.limit,
	}
	if len(e.labels) > 0 { // kept as a list, which takes a fifth of the memory of a map
		who.Labels = make(map[string]string, len(e.labels))
		for _, l := range e.labels {
			who.Labels[l.name] = l.value
		}
	}
	return who, nil
}

// builder makes entries and lets them share what is equal.
type builder struct {
	texts  map[string]string
	scopes map[string][]string
	limits map[ratelimit.LimitSpec]*ratelimit.LimitSpec
}

func newBuilder() *builder {
	return &builder{texts: map[string]string{}, scopes: map[string][]string{}, limits: map[ratelimit.LimitSpec]*ratelimit.LimitSpec{}}
}

func (b *builder) entry(r *Record) entry {
	e := entry{
		hash: r.Hash, disabled: r.Disabled,
		owner: r.Owner, plan: b.text(r.Plan), scopes: b.scopeList(r.Scopes),
		notBefore: micros(r.NotBefore), expires: micros(r.Expires), version: r.Version,
	}
	if r.Previous != nil {
		e.previous = &previousEntry{r.Previous.Hash, r.Previous.ValidUntil.UnixMicro()}
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
			own := *r.Limit
			e.limit, b.limits[own] = &own, &own
		}
	}
	return e
}

// text is the one copy of a text.
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

// micros is a time in µs since 1970, 0 for no time. Times before 1970 are 1, which is as long past.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, t.UnixMicro())
}

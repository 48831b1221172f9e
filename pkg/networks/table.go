package networks

import (
	"strings"
	"sync"

	"github.com/gaissmai/bart"
)

// Table finds in which of several lists an address is. It does not change, and is safe for concurrent use.
type Table struct{ lists bart.Fast[int] }

// Find returns the index of the list with the longest prefix that has the address or the network in a text. If several
// lists have that prefix, it is the first of them. An IPv4-mapped IPv6 address counts as IPv4, and the zone of an
// address is ignored. ok is false if no list has it, and for any other text.
func (t *Table) Find(text string) (list int, ok bool) {
	if address, err := parseAddress(text); err == nil {
		return t.lists.Lookup(address)
	}
	value, ok := parse(text)
	if !ok {
		return 0, false
	}
	return t.lists.LookupPrefix(value)
}

// Tables make the tables of lists, one for all that use the same lists in the same order. They are safe for concurrent
// use.
type Tables struct {
	// Lists are all lists.
	Lists Lists

	mu   sync.Mutex
	made map[string]*Table
}

// Of returns the table of lists with these names. A name of no list is one without prefixes.
func (t *Tables) Of(names ...string) *Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := strings.Join(names, "\n")
	table := t.made[key]
	if table != nil {
		return table
	}
	table = new(Table)
	for i := len(names) - 1; i >= 0; i-- { // the first one replaces later ones
		for _, p := range t.Lists[names[i]] {
			table.lists.Insert(p, i)
		}
	}
	if t.made == nil {
		t.made = map[string]*Table{}
	}
	t.made[key] = table
	return table
}

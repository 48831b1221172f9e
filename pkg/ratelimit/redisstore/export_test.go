package redisstore

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Gathered returns the number of calls that wait to be sent.
func (s *Store) Gathered() int {
	s.spaces[0].(*node).lane.mu.Lock()
	defer s.spaces[0].(*node).lane.mu.Unlock()
	return len(s.spaces[0].(*node).lane.queue)
}

// OnWire returns the number of script calls that wait for their replies.
func (s *Store) OnWire() (calls int) {
	l := &s.spaces[0].(*node).lane
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		if w.link != nil && !slices.Contains(l.idle, w) {
			calls++
		}
	}
	return calls
}

// Connected returns the number of workers that have a connection.
func (s *Store) Connected() (workers int) {
	l := &s.spaces[0].(*node).lane
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		if w.link != nil {
			workers++
		}
	}
	return workers
}

// Quiet reports whether all connections of workers are open, as far as that is known here, and nothing has arrived.
func (s *Store) Quiet() bool {
	l := &s.spaces[0].(*node).lane
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.workers, func(w *worker) bool { return w.link != nil && !w.link.quiet() })
}

// Hear returns what sentinels make of an event: the new master and the replica that was chosen.
func Hear(name, channel, payload string) (master, chosen string) {
	s := &sentinels{master: name}
	master = s.hear(channel, strings.Fields(payload))
	return master, s.chosen
}

// ReplaceClient replaces the client by one of an address, as after a failover.
func ReplaceClient(ctx context.Context, s *Store, addr string) error {
	return s.spaces[0].(*node).use(ctx, addr)
}

// Complete is complete, for tests of its forms.
var Complete = complete

// ChangeTable replaces the table of the slots by an empty one, and back, until end is closed.
func ChangeTable(s *Store, end <-chan struct{}) {
	full := s.spaces[0].(*cluster).table.Load()
	for {
		select {
		case <-end:
			return
		default:
		}
		s.spaces[0].(*cluster).table.Store(new(slotTable))
		s.spaces[0].(*cluster).table.Store(full)
	}
}

// ReplaceNodes ends all nodes, as if other servers had their slots now, and reads the slots again.
func ReplaceNodes(ctx context.Context, s *Store) error {
	c := s.spaces[0].(*cluster)
	c.mu.Lock()
	old := c.known
	c.known = map[string]*node{}
	c.mu.Unlock()
	err := c.read(ctx)
	for _, n := range old {
		_ = n.close()
	}
	return err
}

// Pauses returns the times between readings of the slots, of tables with and without a slot that no node has.
func Pauses(unserved ...bool) (pauses []time.Duration) {
	var p pace
	served := new(slotTable)
	for i := range served {
		served[i] = new(node)
	}
	for _, lacks := range unserved {
		table := *served
		if lacks {
			table[7] = nil
		}
		pauses = append(pauses, p.next(&table))
	}
	return pauses
}

// NoteOf is besideOf for a note, and HoldsOf for holds.
func NoteOf(prefix, key string) string  { return besideOf(prefix, noteMark, key) }
func HoldsOf(prefix, key string) string { return besideOf(prefix, holdsMark, key) }

// SlotOf is slotOf, for tests of names.
var SlotOf = slotOf

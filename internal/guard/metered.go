package guard

import (
	"errors"
	"time"
)

// Metered is a connection whose server accounts for its requests itself (Config.Metered). The guard bounds the number
// of such connections, their memory in all, and the time of each write.
type Metered struct {
	conn
	owner Owner // guarded by mu; nil until Attach
}

// Owner is the server's side of a Metered connection.
type Owner interface {
	// Cut resets requests until need bytes are free, or none is left. It returns the number of bytes that these requests
	// held, and how many of them are released only later (Change.Leaving). It must not wait, and not call Account.
	Cut(need int64) (freed, leaving int64)
	// Sweep is called ten times a second, to enforce time limits. It must not wait.
	Sweep(now time.Time)
}

// Attach sets the owner.
func (m *Metered) Attach(o Owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner = o
}

// Change is a change of what the requests of a connection hold.
type Change struct {
	// Staying is the memory of requests that are not cut, Leaving that of the others.
	Staying, Leaving int64
	// Requests is the number of requests now.
	Requests int
}

// Account records a change. If all clients together hold too much, it cuts requests. The caller must not hold locks
// that its Owner takes.
func (m *Metered) Account(c Change) {
	m.mu.Lock()
	m.waiting = c.Requests
	m.hold(c.Staying, c.Leaving)
	m.mu.Unlock()
	if c.Staying > 0 && m.l.over() {
		m.l.freeMemory()
	}
}

// Count counts something that the server has closed or reset.
func (m *Metered) Count(r Reason) { m.l.cuts[r].Add(1) }

// Write implements net.Conn.
func (m *Metered) Write(p []byte) (int, error) {
	n, err := m.write(p)
	m.Wrote()
	return n, err
}

// Wrote records a write that was made without Write, and has not waited.
func (m *Metered) Wrote() { m.last.Store(m.l.now.Load()) }

// Abort closes the connection at once. Until Close, what its requests hold counts.
func (m *Metered) Abort() { m.cut() }

// CloseWrite tells the client that nothing follows, but still reads.
func (m *Metered) CloseWrite() error {
	if c, ok := m.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (m *Metered) attached() Owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owner
}

func (m *Metered) cutRequests(need int64) int64 {
	owner := m.attached()
	if owner == nil {
		return 0
	}
	freed, leaving := owner.Cut(need)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold(-freed, leaving)
	return freed
}

func (m *Metered) sweep() {
	if owner := m.attached(); owner != nil {
		owner.Sweep(time.Now())
	}
}

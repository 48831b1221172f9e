package redisstore

import (
	"sync"
	"time"
)

// watch ends what a link waits for at the end of a batch. Its timer is not set for each batch, which takes time. When
// the timer fires, it is set again for the batch of that moment.
type watch struct {
	mu    sync.Mutex
	link  *link
	timer *time.Timer
	next  time.Time // when the timer fires; zero if it is not set
	end   time.Time // of the batch; zero if nothing waits
	ended bool      // the link waits for nothing until stop
}

// begin ends the reads and writes of a link at a time, unless stop is called before.
func (w *watch) begin(l *link, end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link, w.end = l, end
	if w.next.IsZero() || end.Before(w.next) {
		w.set(end)
	}
}

func (w *watch) set(at time.Time) {
	w.next = at
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(at), w.look)
		return
	}
	w.timer.Reset(time.Until(at))
}

// look is called when the timer fires.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Time{}
	switch {
	case w.end.IsZero():
	case time.Now().Before(w.end):
		w.set(w.end)
	default:
		w.ended = true
		_ = w.link.SetDeadline(time.Unix(1, 0)) // an error means that the link was closed
	}
}

// stop lets the link wait again, without an end.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = time.Time{}
	if w.ended {
		w.ended = false
		_ = w.link.SetDeadline(time.Time{}) // as above
	}
}

package jwt

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// origin is where keys come from: a file or a URL.
type origin struct {
	// name tells origins apart. It is fit for logs.
	name string
	// floor is the least time between two readings that requests, or errors, ask for.
	floor time.Duration
	// read returns the document, and for how long it need not be read again.
	read func(ctx context.Context) (text []byte, fresh time.Duration, err error)
}

// Reading is how a reading of keys went.
type Reading struct {
	// Source is the path or URL.
	Source string
	// Keys is how many keys are trusted now, Skipped how many the document has that cannot be used.
	Keys, Skipped int
	// Err is why the keys could not be read; the previous ones stay active. Nil for a success.
	Err error
}

// firstRetry is how long after an error keys are read again that have never been read; then twice as long each time, up to the
// floor. A service that starts before its issuer is up need not wait for long.
const firstRetry = time.Second

// margin is what is left of a request's time when it stops waiting for keys, so that there is some to answer.
const margin = 3 * time.Millisecond

// source keeps the keys of one origin. It reads them when they are due and when requests ask for it, once at a time.
type source struct {
	origin
	cfg     Config
	ctx     context.Context // of readings
	cancel  context.CancelFunc
	running *sync.WaitGroup // has the reading in flight
	good    atomic.Pointer[goodKeys]
	told    news // by the last OnReading

	mu       sync.Mutex
	reading  chan struct{} // closed when the reading in flight has ended; nil without one
	began    time.Time     // the last reading
	next     *time.Timer   // begins the next reading
	failures uint64
}

// goodKeys are the keys that were read last without an error.
type goodKeys struct {
	set  *keySet
	read time.Time
}

// news tells readings that are worth a line in a log from those that went as the one before.
type news struct {
	keys *keySet
	err  string
}

// newSource returns a source that has begun to read, so that requests wait for the keys.
func newSource(cfg Config, o origin, running *sync.WaitGroup) *source {
	s := &source{origin: o, cfg: cfg, running: running}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.start(0)
	return s
}

// stop ends the reading of keys. Those that there are serve on.
func (s *source) stop() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.next.Stop()
	}
}

// keys returns the keys; nil when there never were any, or they are too old.
func (s *source) keys(now time.Time) *keySet {
	good := s.good.Load()
	if good == nil || now.Sub(good.read) > s.cfg.MaxStale {
		return nil
	}
	return good.set
}

// refresh has the keys read again, unless that was less than the floor ago, and waits for the reading in flight until ctx is
// nearly done. After it, look for keys again: also when there was none to wait for, one may have ended since the keys were looked at.
func (s *source) refresh(ctx context.Context) {
	done := s.start(s.floor)
	if done == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
		defer cancel()
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// start begins a reading, unless one is in flight, the last one began less than some time ago, or the source has been stopped. It
// returns what is closed when the reading in flight has ended; nil without one.
func (s *source) start(least time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil && s.ctx.Err() == nil && s.cfg.Now().Sub(s.began) >= least {
		s.reading, s.began = make(chan struct{}), s.cfg.Now()
		s.running.Go(s.run)
	}
	return s.reading
}

// run reads the keys, and decides when to read them again.
func (s *source) run() {
	fresh, err := s.update()
	stopped := s.ctx.Err() != nil
	if !stopped {
		s.tell(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.reading)
	s.reading = nil
	if stopped {
		return
	}
	if err != nil {
		s.failures++
		fresh = s.floor
		if s.good.Load() == nil {
			fresh = min(firstRetry<<min(s.failures-1, 10), s.floor)
		}
	}
	// Up to a tenth earlier, so that replicas do not all ask an issuer at the same moment.
	s.next = time.AfterFunc(fresh-rand.N(fresh/10+1), func() { s.start(0) })
}

// update reads the keys once. Its error leaves the previous ones in place.
func (s *source) update() (fresh time.Duration, err error) {
	text, fresh, err := s.read(s.ctx)
	if err != nil {
		return 0, err
	}
	set, err := parseKeys(text)
	if err != nil {
		return 0, err
	}
	if before := s.good.Load(); before != nil && before.set.version == set.version {
		set = before.set
	}
	s.good.Store(&goodKeys{set: set, read: s.cfg.Now()})
	return fresh, nil
}

// tell calls OnReading, if the reading that ended with err is news.
func (s *source) tell(err error) {
	r, now := Reading{Source: s.name, Err: err}, news{}
	if good := s.good.Load(); good != nil {
		now.keys, r.Keys, r.Skipped = good.set, len(good.set.keys), good.set.skipped
	}
	if err != nil {
		now.err = err.Error()
	}
	if now != s.told {
		s.told = now
		s.cfg.OnReading(r)
	}
}

package jwt

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Reading is the result of one reading of keys.
type Reading struct {
	// Source is the path, the URL, or the issuer and "(discovery)".
	Source string
	// Keys is how many keys are trusted now. Skipped is how many keys of the document cannot be used.
	Keys, Skipped int
	// Err is why the keys could not be read, nil after a success. After an error, the previous keys stay active.
	Err error
}

// firstRetry is the delay after the first error of a source without keys. It doubles up to the floor.
const firstRetry = time.Second

// maxStale is how long keys stay valid after their last successful reading.
const maxStale = 24 * time.Hour

// source keeps the keys of one origin. It reads them when they are due and when requests need it, once at a time.
type source struct {
	origin
	cfg      Config
	ctx      context.Context // of readings
	cancel   context.CancelFunc
	running  *sync.WaitGroup        // includes the current reading
	good     atomic.Pointer[keySet] // of the last successful reading
	reported outcome                // by the last OnReading

	mu       sync.Mutex
	reading  chan struct{} // closed at the end of the current reading; nil without one
	began    time.Time     // the last reading
	next     *time.Timer   // begins the next reading
	failures uint64
}

// outcome is the result of a reading. Only a changed outcome is reported.
type outcome struct {
	keys version
	err  string
}

// stop ends the reading of keys. The keys that were read stay valid.
func (s *source) stop() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.next.Stop()
	}
}

// keys returns the keys; nil if none were ever read, or if they are too old.
func (s *source) keys(now time.Time) *keySet {
	good := s.good.Load()
	if good == nil || now.Sub(good.read) > maxStale {
		return nil
	}
	return good
}

// refresh begins a reading, unless the last one began less than the floor ago, and waits for the current reading until
// ctx is nearly done. Call keys again after it, in any case: a reading may have ended since the previous call.
func (s *source) refresh(ctx context.Context) {
	done := s.start(s.floor)
	if done == nil {
		return
	}
	_ = ended(ctx, done)
}

// ended waits for done until ctx is nearly done. It returns false if that was too early.
func ended(ctx context.Context, done <-chan struct{}) bool {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-ratelimit.DeadlineReserve))
		defer cancel()
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// start begins a reading, unless one is running, the last one began less than `least` ago, or the source is stopped. It
// returns a channel that is closed at the end of the current reading; nil without one.
func (s *source) start(least time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil && s.ctx.Err() == nil && s.cfg.Now().Sub(s.began) >= least {
		if s.next != nil {
			s.next.Stop() // run sets another
		}
		s.reading, s.began = make(chan struct{}), s.cfg.Now()
		s.running.Go(s.run)
	}
	return s.reading
}

// run reads the keys, and schedules the next reading.
func (s *source) run() {
	fresh, err := s.update()
	stopped := s.ctx.Err() != nil
	if !stopped {
		s.report(err)
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
	// Up to a tenth earlier, so that replicas do not all fetch at the same moment.
	s.next = time.AfterFunc(fresh-rand.N(fresh/10+1), func() { s.start(0) })
}

// update reads the keys once. After an error, the previous keys stay.
func (s *source) update() (fresh time.Duration, err error) {
	text, fresh, err := s.read(s.ctx)
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.task, err)
	}
	set, err := parseKeys(text)
	if err != nil {
		return 0, err
	}
	set.read = s.cfg.Now()
	s.good.Store(set)
	return fresh, nil
}

// report calls OnReading, if the outcome of the reading that ended with err is new.
func (s *source) report(err error) {
	r, now := Reading{Source: s.name, Err: err}, outcome{}
	if good := s.good.Load(); good != nil {
		now.keys, r.Keys, r.Skipped = good.version, len(good.keys), good.skipped
	}
	if err != nil {
		now.err = err.Error()
	}
	if now != s.reported {
		s.reported = now
		s.cfg.OnReading(r)
	}
}

// SourceStats are the figures of a source of keys at one moment.
type SourceStats struct {
	// Name is Reading.Source.
	Name string
	// Keys is how many keys are trusted.
	Keys int
	// LastSuccess is when the keys were last read without an error; zero for never.
	LastSuccess time.Time
	// Failures is how many readings failed.
	Failures uint64
}

// Sources returns the figures of the active sources of keys, sorted by name.
func (v *Verifier) Sources() (list []SourceStats) {
	sources := v.policy.Load().sources
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		list = append(list, sources[name].stats())
	}
	return list
}

func (s *source) stats() SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := SourceStats{Name: s.name, Failures: s.failures}
	if good := s.good.Load(); good != nil {
		stats.LastSuccess = good.read
		if keys := s.keys(s.cfg.Now()); keys != nil {
			stats.Keys = len(keys.keys)
		}
	}
	return stats
}

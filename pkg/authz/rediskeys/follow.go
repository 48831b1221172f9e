package rediskeys

import (
	"context"
	"errors"
	"time"
)

// The times of Follow. A change is seen within a poll and the time that it takes to read all keys: 100,000 take 1.2 s.
const (
	pollInterval = time.Second
	pollTimeout  = time.Second
	loadTimeout  = 20 * time.Second
	// A record can be changed without the seal, which a poll does not notice and which does no harm to this copy. All records are
	// verified this often, so that the operator learns of it before a replica starts and finds nothing that it may use.
	verifyInterval = 10 * time.Minute
	// Keys that could not be used are read again this often, whether their seal is another one or not: a user of Redis who changes
	// it again and again must not keep each replica reading.
	refusedInterval = 10 * time.Second
)

// Hooks are called by Follow, one after the other; none may be nil.
type Hooks struct {
	// Changed gets the keys when they are others than before.
	Changed func(Copy)
	// Confirmed is called after each poll that found the keys of the last Changed in Redis. The keys were there at that time or
	// later.
	Confirmed func(time.Time)
	// Down is called with the error when polls begin to fail, and again when the kind of error changes: ErrLost, ErrUnsigned,
	// ErrOld, ErrTooLarge, or any other for a Redis that cannot be read. Up is called when polls succeed again.
	Down func(error)
	Up   func()
}

// Follow looks for changes until the context is done. loaded is the generation that the caller has.
func (s *Store) Follow(ctx context.Context, loaded Generation, hooks Hooks) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	f := &follower{store: s, loaded: loaded}
	var trouble error // that Down was called with last, nil since Up
	for {
		begin := time.Now()
		found, err := f.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (trouble == nil || !errors.Is(kind(err), kind(trouble))):
			trouble = err
			hooks.Down(err)
		case err == nil && trouble != nil:
			trouble = nil
			hooks.Up()
		}
		if found != nil {
			hooks.Changed(*found)
		}
		if err == nil {
			hooks.Confirmed(begin)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

var errUnreadable = errors.New("the API keys cannot be read")

// kind is the error of this package that err wraps.
func kind(err error) error {
	for _, k := range []error{ErrLost, ErrUnsigned, ErrOld, ErrTooLarge} {
		if errors.Is(err, k) {
			return k
		}
	}
	return errUnreadable
}

// follower is what Follow knows.
type follower struct {
	store  *Store
	loaded Generation // of the copy in use
	// The last time that all keys were read: when, which seal they had, and why they cannot be used, nil if they can.
	read    time.Time
	seal    string
	refused error
}

// poll returns the keys when they are of another generation than those in use, else nil. The error says why the keys in use were
// not found in Redis.
func (f *follower) poll(ctx context.Context) (*Copy, error) {
	// A loss is no reason to wait: there was nothing to read.
	if f.refused != nil && !errors.Is(f.refused, ErrLost) && time.Since(f.read) < refusedInterval {
		return nil, f.refused
	}
	pollCtx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	seal, err := f.store.seal(pollCtx, f.store.client)
	if err != nil {
		return nil, err
	}
	if seal == f.seal && f.refused == nil && time.Since(f.read) < verifyInterval {
		return nil, f.refused
	}
	loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, err := f.store.Load(loadCtx)
	f.read, f.seal, f.refused = time.Now(), seal, f.refuse(found.Generation, err)
	if f.refused != nil || found.Generation == f.loaded {
		return nil, f.refused
	}
	f.loaded = found.Generation
	return &found, nil
}

// refuse says why keys of a generation do not replace those in use. err is that of opening them.
func (f *follower) refuse(found Generation, err error) error {
	switch {
	case found == Generation{} && err == nil && f.loaded != Generation{}:
		return ErrLost
	case err != nil:
		return err
	case found.version < f.loaded.version, found.version == f.loaded.version && found != f.loaded:
		return ErrOld
	}
	return nil
}

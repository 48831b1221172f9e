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
	// Refused keys are read again this often, also if their seal changes, so that nothing keeps replicas reading.
	refusedInterval = 10 * time.Second
)

// Poll is how a look for changes went.
type Poll struct {
	// Begin is when it began. Without an Err, Redis had the keys in use at that time or later.
	Begin time.Time
	// Keys are the keys if they are others than before, else nil.
	Keys *Copy
	// Err says why the keys in use were not found in Redis: ErrLost, ErrUnsigned, ErrOld, ErrTooLarge, or any other if Redis cannot
	// be read. News says that it is of another kind than the one before, nil at first.
	Err  error
	News bool
}

// Follow looks for changes until the context is done, and calls report each time. loaded is the generation that the caller has.
func (s *Store) Follow(ctx context.Context, loaded Generation, report func(Poll)) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	f := &follower{store: s, loaded: loaded}
	var last error // the kind of the last one
	for {
		p := Poll{Begin: time.Now()}
		p.Keys, p.Err = f.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		now := kind(p.Err)
		p.News, last = now != last, now //nolint:errorlint // kinds are compared
		report(p)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

var errUnreadable = errors.New("the API keys cannot be read")

// kind is the error of this package that err wraps, nil for none.
func kind(err error) error {
	for _, k := range []error{nil, ErrLost, ErrUnsigned, ErrOld, ErrTooLarge} {
		if errors.Is(err, k) {
			return k
		}
	}
	return errUnreadable
}

type follower struct {
	store  *Store
	loaded Generation // of the copy in use
	// The last time that all keys were read: when, which seal they had, and why they cannot be used, nil if they can.
	read    time.Time
	seal    string
	refused error
}

// poll returns the keys if they are of another generation than those in use. The error is that of Poll.
func (f *follower) poll(ctx context.Context) (*Copy, error) {
	// A loss is no reason to wait: there was nothing to read.
	if f.refused != nil && !errors.Is(f.refused, ErrLost) && time.Since(f.read) < refusedInterval {
		return nil, f.refused
	}
	pollCtx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	seal, _, _, err := f.store.page(pollCtx, f.store.client, "", 0)
	if err != nil {
		return nil, err
	}
	if seal == f.seal && f.refused == nil && time.Since(f.read) < verifyInterval {
		return nil, f.refused
	}
	loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, err := f.store.Load(loadCtx)
	now := found.Generation
	switch {
	case err != nil:
	case now == Generation{} && f.loaded != Generation{}:
		err = ErrLost
	case now.version < f.loaded.version, now.version == f.loaded.version && now != f.loaded:
		err = ErrOld
	}
	f.read, f.seal, f.refused = time.Now(), seal, err
	if err != nil || now == f.loaded {
		return nil, err
	}
	f.loaded = now
	return &found, nil
}

package rediskeys

import (
	"context"
	"errors"
	"time"
)

// The times of Follow. It finds a change within one poll and the time to read all keys: 1.2 s for 100,000.
const (
	pollInterval = time.Second
	pollTimeout  = time.Second
	// The next poll after one that could not read Redis, because another master may take over at any time.
	retryInterval = 200 * time.Millisecond
	loadTimeout   = 20 * time.Second
	// A poll reads only the seal, so it misses a record that was changed without the seal. That does not harm this copy.
	// Follow verifies all records this often, so that the operator learns of it before a replica starts without keys.
	verifyInterval = 10 * time.Minute
	// Refused keys are read again this often at most, so that changes of their seal do not keep replicas reading.
	refusedInterval = 10 * time.Second
)

// Poll is the result of one poll.
type Poll struct {
	// Begin is when the poll began. Without an Err, Redis had the active keys at that time or later.
	Begin time.Time
	// Keys are the keys if they have changed, else nil.
	Keys *Copy
	// Err is why the active keys were not found in Redis: ErrLost, ErrUnsigned, ErrOld, ErrTooLarge, or another error if
	// Redis cannot be read. News is true if the kind of Err differs from that of the previous poll, at first from nil.
	Err  error
	News bool
}

// Follow polls Redis until ctx is done, and calls report each time. loaded is the generation of the caller's keys.
func (s *Store) Follow(ctx context.Context, loaded Generation, report func(Poll)) {
	f := &follower{store: s, loaded: loaded}
	var last error // the kind of the last error
	for {
		p := Poll{Begin: time.Now()}
		p.Keys, p.Err = f.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		now := kind(p.Err)
		p.News, last = now != last, now //nolint:errorlint // kinds are compared
		report(p)
		wait := pollInterval
		if errors.Is(now, errUnreadable) {
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

var errUnreadable = errors.New("the API keys cannot be read")

// kind returns the error of this package that err wraps, nil for none.
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
	loaded Generation // of the active copy
	// Of the last reading of all keys: its time, the seal, and why the keys cannot be used, nil if they can.
	read    time.Time
	seal    string
	refused error
}

// poll returns the keys if their generation differs from that of the active ones. The error is Poll.Err.
func (f *follower) poll(ctx context.Context) (*Copy, error) {
	// After a loss it does not wait: an empty Redis costs nothing to read.
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

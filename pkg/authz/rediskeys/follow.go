package rediskeys

import (
	"context"
	"errors"
	"time"
)

// The times of Follow. A change is seen within a poll and the time that it takes to read all keys: 100,000 take about a second.
const (
	pollInterval = time.Second
	pollTimeout  = time.Second
	loadTimeout  = 20 * time.Second
)

// Hooks are told what Follow finds, one call after the other; none may be nil.
type Hooks struct {
	// Changed is told of each change, and of the keys that are there at first.
	Changed func(Copy)
	// Down is told once when the keys can not be read any more, and once when they turn out to be lost (ErrLost); Up when they
	// can be read again.
	Down func(error)
	Up   func()
}

// Follow looks for changes until the context is done. loaded is the generation that the caller has, "" for none.
func (s *Store) Follow(ctx context.Context, loaded string, hooks Hooks) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var trouble error // what Down was told last, nil since Up
	for {
		found, err := s.poll(ctx, loaded)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (trouble == nil || errors.Is(err, ErrLost) && !errors.Is(trouble, ErrLost)):
			trouble = err
			hooks.Down(err)
		case err == nil && trouble != nil:
			trouble = nil
			hooks.Up()
		}
		if found != nil {
			loaded = found.Generation
			hooks.Changed(*found)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// poll returns the keys when they are of another generation than the loaded one, else nil.
func (s *Store) poll(ctx context.Context, loaded string) (*Copy, error) {
	pollCtx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	generation, err := s.generation(pollCtx)
	switch {
	case err != nil:
		return nil, err
	case generation == loaded:
		return nil, nil //nolint:nilnil // no change is an answer
	case generation == "":
		return nil, ErrLost
	}
	loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, err := s.Load(loadCtx)
	if err != nil {
		return nil, err
	}
	if found.Generation == "" {
		return nil, ErrLost
	}
	return &found, nil
}

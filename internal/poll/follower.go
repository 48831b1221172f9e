package poll

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Interval is the time between two readings. A change counts when two readings in a row agree. Notifications of the
// kernel are not used: they miss changes on network file systems and behind the links of a ConfigMap or Secret.
const Interval = 500 * time.Millisecond

// Follower reads files again and again. Use New. Only Reload may be called from several goroutines at once.
type Follower struct {
	list     func() ([]string, error)
	maxSize  int64
	last     Reading
	requests chan struct{}
}

// Reading is the result of one reading.
type Reading struct {
	// Files are the listed files, in that order. Err is the reason why they could not be listed.
	Files []File
	Err   error
}

// New returns a follower of the files that list returns. It reads at most maxSize+1 bytes of each, to show larger ones.
func New(maxSize int64, list func() ([]string, error)) *Follower {
	return &Follower{list: list, maxSize: maxSize, requests: make(chan struct{}, 1)}
}

// NewOf returns a follower of the files with these paths.
func NewOf(maxSize int64, paths ...string) *Follower {
	return New(maxSize, func() ([]string, error) { return paths, nil })
}

// Read reads the files now. agrees is true if the previous reading had the same result.
func (f *Follower) Read() (r Reading, agrees bool) {
	last := f.last
	paths, err := f.list()
	r = Reading{Files: make([]File, len(paths)), Err: err}
	for i, path := range paths {
		before, _ := last.File(path)
		r.Files[i] = readAgain(path, f.maxSize, before)
	}
	f.last = r
	return r, fmt.Sprint(r.Err) == fmt.Sprint(last.Err) && slices.EqualFunc(r.Files, last.Files, func(a, b File) bool {
		return a.Name == b.Name && a.hash == b.hash
	})
}

// Load reads the files until two readings agree, because a change may be under way. It gives up after a few readings.
func (f *Follower) Load() Reading {
	r, agrees := f.Read()
	for i := 0; i < 3 && (i == 0 || !agrees); i++ {
		r, agrees = f.Read()
	}
	return r
}

// Run reads the files at each Interval until the context is done. It calls report for each reading that agrees with the
// one before it, even without a change. The first reading after Reload is requested, and does not have to agree.
func (f *Follower) Run(ctx context.Context, report func(r Reading, requested bool)) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		requested := false
		select {
		case <-ctx.Done():
			return
		case <-f.requests:
			requested = true
		case <-ticker.C:
		}
		if r, agrees := f.Read(); agrees || requested {
			report(r, requested)
		}
	}
}

// Reload makes Run read at once, as on SIGHUP. It does not block and may be called from any goroutine.
func (f *Follower) Reload() {
	select {
	case f.requests <- struct{}{}:
	default: // a request is waiting already
	}
}

// Forget gives up the contents of the last reading. Readings of unchanged files then have no content.
func (f *Follower) Forget() {
	for i := range f.last.Files {
		f.last.Files[i].Content = nil
	}
}

// File returns the file with a name. ok is false if it was not listed.
func (r Reading) File(name string) (f File, ok bool) {
	if i := slices.IndexFunc(r.Files, func(f File) bool { return f.Name == name }); i >= 0 {
		return r.Files[i], true
	}
	return File{}, false
}

// Every calls f after each interval until ctx is done.
func Every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

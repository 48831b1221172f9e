package certs

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/poll"
)

// maxSize bounds a file in bytes. The authorities of a Linux distribution have 0.2 MB.
const maxSize = 16 << 20

// files is a value that is made of the contents of files, and made again when they change.
type files[T any] struct {
	follower *poll.Follower
	parse    func(contents [][]byte) (*T, error)
	// changed is called once for each change of the files: with nil if the new contents are in use, else with the reason
	// why the previous ones are. It may be nil.
	changed func(error)

	reading sync.Mutex // only one goroutine reads; the others take the value as it is
	state   atomic.Pointer[state[T]]
}

type state[T any] struct {
	value *T
	err   error // why value is not of the contents that were read last
}

// open reads files for the first time. parse and changed are those of files.
func open[T any](changed func(error), parse func([][]byte) (*T, error), paths ...string) (*files[T], error) {
	f := &files[T]{follower: poll.NewOf(maxSize, paths...), parse: parse, changed: changed}
	r, _ := f.follower.Read()
	value, err := f.valueOf(r)
	if err != nil {
		return nil, err
	}
	f.state.Store(&state[T]{value: value})
	return f, nil
}

// Current reads the files again, and returns the value of their contents. It returns the previous value while another
// goroutine reads them, and after an error.
func (f *files[T]) Current() *T {
	if f.reading.TryLock() {
		defer f.reading.Unlock()
		f.update(f.state.Load())
	}
	return f.state.Load().value
}

// Err returns why the files are not in use; nil if they are.
func (f *files[T]) Err() error {
	f.Current()
	return f.state.Load().err
}

// update makes the value again if the files have changed. f.reading is held.
func (f *files[T]) update(last *state[T]) {
	r, agrees := f.follower.Read()
	if agrees {
		return
	}
	value, err := f.valueOf(r)
	if err != nil {
		value = last.value
	}
	f.state.Store(&state[T]{value, err})
	same := err != nil && last.err != nil && err.Error() == last.err.Error()
	if f.changed != nil && !same {
		f.changed(err)
	}
}

// valueOf returns the value of the contents of the files.
func (f *files[T]) valueOf(r poll.Reading) (*T, error) {
	var contents [][]byte
	var names []string
	for _, file := range r.Files {
		switch {
		case file.Err != nil:
			return nil, file.Err
		case len(file.Content) > maxSize:
			return nil, fmt.Errorf("%s: larger than %d MB", file.Name, maxSize>>20)
		}
		contents, names = append(contents, file.Content), append(names, file.Name)
	}
	value, err := f.parse(contents)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(names, " with "), err)
	}
	return value, nil
}

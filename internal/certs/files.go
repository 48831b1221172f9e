package certs

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// files is a value that is made of the contents of files, and made again when they change.
type files[T any] struct {
	paths []string
	parse func(contents [][]byte) (*T, error)
	// changed is called once for each change of the files: with nil if the new contents are in use, else with the reason
	// why the previous ones are. It may be nil.
	changed func(error)

	reading sync.Mutex // only one goroutine reads; the others take the value as it is
	state   atomic.Pointer[state[T]]
}

type state[T any] struct {
	contents [][]byte // what was read last
	value    *T
	err      error // why value is not of these contents
}

// open reads the files for the first time.
func open[T any](f *files[T]) (*files[T], error) {
	contents, err := f.read()
	if err != nil {
		return nil, err
	}
	value, err := f.parse(contents)
	if err != nil {
		return nil, err
	}
	f.state.Store(&state[T]{contents: contents, value: value})
	return f, nil
}

// get reads the files again, and returns the value of their contents. It returns the previous value while another
// goroutine reads them, and after an error.
func (f *files[T]) get() *T {
	if f.reading.TryLock() {
		defer f.reading.Unlock()
		f.update(f.state.Load())
	}
	return f.state.Load().value
}

// err returns why the files are not in use; nil if they are.
func (f *files[T]) err() error {
	f.get()
	return f.state.Load().err
}

// update makes the value again if the files have changed. f.reading is held.
func (f *files[T]) update(last *state[T]) {
	contents, err := f.read()
	if err == nil && slices.EqualFunc(contents, last.contents, bytes.Equal) {
		return
	}
	value := last.value
	if err == nil {
		var parsed *T
		if parsed, err = f.parse(contents); err == nil {
			value = parsed
		}
	}
	f.state.Store(&state[T]{contents, value, err})
	same := err != nil && last.err != nil && err.Error() == last.err.Error()
	if f.changed != nil && !same {
		f.changed(err)
	}
}

func (f *files[T]) read() (contents [][]byte, err error) {
	for _, path := range f.paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return contents, nil
}

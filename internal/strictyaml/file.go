package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// File is the name and the content of a file.
type File struct {
	// Name is the name of the file in problems and positions, usually its path.
	Name    string
	Content []byte
	// Info describes the open file that Content was read from, nil if there was none.
	Info os.FileInfo
}

// ReadFile reads a regular file of a kind, or returns the problem why it cannot. A path that is not a regular file is
// a warning, because a directory of such files can also have others.
func ReadFile(path string, kind *Kind) (File, *Problem) {
	// Stat before Open: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return File{}, Unreadable(path, kind.Noun, err)
	case info.IsDir() && kind.Directory != "":
		return File{}, &Problem{File: path, Warning: true, Message: "left out: " + kind.Directory}
	case !info.Mode().IsRegular():
		return File{}, &Problem{File: path, Warning: true, Message: "left out: not a regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return File{}, Unreadable(path, kind.Noun, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // the file may have been replaced since the first Stat
		return File{}, Unreadable(path, kind.Noun, err)
	}
	return read(path, f, info, kind)
}

// ReadFrom reads a file of a kind from an open reader, or returns the problem why it cannot. It stops one byte after
// Kind.MaxSize: Read reports such a file as too large.
func ReadFrom(name string, from io.Reader, kind *Kind) (File, *Problem) {
	return read(name, from, nil, kind)
}

// read reads a file. info is nil for a reader that is no file.
func read(name string, from io.Reader, info os.FileInfo, kind *Kind) (File, *Problem) {
	var content bytes.Buffer
	if info != nil { // watchers read their files each second: one buffer of the right size saves much garbage
		content.Grow(int(min(info.Size(), kind.MaxSize)) + bytes.MinRead)
	}
	if _, err := content.ReadFrom(io.LimitReader(from, kind.MaxSize+1)); err != nil {
		return File{}, Unreadable(name, kind.Noun, err)
	}
	return File{Name: name, Content: content.Bytes(), Info: info}, nil
}

// Unreadable returns the problem of a file or directory that cannot be read.
func Unreadable(name, noun string, err error) *Problem {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the problem names the path already
	}
	return &Problem{File: name, Message: "read " + noun + ": " + err.Error()}
}

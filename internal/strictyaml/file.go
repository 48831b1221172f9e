package strictyaml

import (
	"errors"
	"io"
	"io/fs"

	"github.com/extauthz/extauthz/internal/poll"
)

// File is the name and the content of a file.
type File struct {
	// Name is the name of the file in problems and positions, usually its path.
	Name    string
	Content []byte
}

// ReadFile reads a regular file of a kind, or returns the problem why it cannot. A path that is not a regular file is
// a warning, because a directory of such files can also have others.
func ReadFile(path string, kind *Kind) (File, *Problem) {
	content, info, err := poll.Read(path, kind.MaxSize)
	if err != nil {
		return File{}, Unread(poll.File{Name: path, Info: info, Err: err}, kind)
	}
	return File{Name: path, Content: content}, nil
}

// Unread returns the problem of a file that could not be read: see ReadFile.
func Unread(f poll.File, kind *Kind) *Problem {
	switch {
	case !errors.Is(f.Err, poll.ErrNotRegular):
		return Unreadable(f.Name, kind.Noun, f.Err)
	case f.Info.IsDir() && kind.Directory != "":
		return &Problem{File: f.Name, Warning: true, Message: "left out: " + kind.Directory}
	}
	return &Problem{File: f.Name, Warning: true, Message: "left out: not a regular file"}
}

// ReadFrom reads a file of a kind from an open reader, or returns the problem why it cannot. It stops one byte after
// Kind.MaxSize: Read reports such a file as too large.
func ReadFrom(name string, from io.Reader, kind *Kind) (File, *Problem) {
	content, err := io.ReadAll(io.LimitReader(from, kind.MaxSize+1))
	if err != nil {
		return File{}, Unreadable(name, kind.Noun, err)
	}
	return File{Name: name, Content: content}, nil
}

// Unreadable returns the problem of a file or directory that cannot be read.
func Unreadable(name, noun string, err error) *Problem {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the problem names the path already
	}
	return &Problem{File: name, Message: "read " + noun + ": " + err.Error()}
}

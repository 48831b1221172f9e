package strictyaml

import (
	"errors"
	"io"
	"io/fs"

	"github.com/extauthz/extauthz/internal/poll"
)

// File is a file as it was read. Its name, usually the path, is in problems and positions.
type File = poll.File

// Stdin is the path that stands for standard input.
const Stdin = "-"

// ReadFile reads a regular file of a kind, or stdin if the path is Stdin and stdin is not nil. It returns the problem
// why it cannot. A path that is not a regular file is a warning, because a directory of such files can also have
// others. It reads at most one byte more than Kind.MaxSize: Read reports such a file as too large.
func ReadFile(path string, stdin io.Reader, kind *Kind) (File, *Problem) {
	if path == Stdin && stdin != nil {
		content, err := io.ReadAll(io.LimitReader(stdin, kind.MaxSize+1))
		f := File{Name: "standard input", Content: content, Err: err}
		return f, Unread(f, kind)
	}
	content, info, err := poll.Read(path, kind.MaxSize)
	f := File{Name: path, Content: content, Info: info, Err: err}
	return f, Unread(f, kind)
}

// Unread returns the problem of a file that could not be read, nil if it was: see ReadFile.
func Unread(f File, kind *Kind) *Problem {
	switch {
	case f.Err == nil:
		return nil
	case !errors.Is(f.Err, poll.ErrNotRegular):
		return Unreadable(f.Name, kind.Noun, f.Err)
	case f.Info.IsDir() && kind.Directory != "":
		return &Problem{File: f.Name, Warning: true, Message: "left out: " + kind.Directory}
	}
	return &Problem{File: f.Name, Warning: true, Message: "left out: not a regular file"}
}

// Unreadable returns the problem of a file or directory that cannot be read.
func Unreadable(name, noun string, err error) *Problem {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the problem names the path already
	}
	return &Problem{File: name, Message: "read " + noun + ": " + err.Error()}
}

package strictyaml

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// File is the text of a file.
type File struct {
	// Name is what problems and positions call the file, usually its path.
	Name    string
	Content []byte
	// Info is of the open file that Content was read from, nil if it was not read from one.
	Info os.FileInfo
}

// ReadFile reads a regular file of a kind; otherwise the problem says why not. What is not a regular file is a
// warning, because a directory can have others beside the files that are meant.
func ReadFile(path string, kind *Kind) (File, *Problem) {
	// Stat before Open: to open a named pipe would wait for a writer.
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
	if info, err = f.Stat(); err != nil { // another file than before, perhaps
		return File{}, Unreadable(path, kind.Noun, err)
	}
	file, problem := ReadFrom(path, f, kind)
	file.Info = info
	return file, problem
}

// ReadFrom reads a file of a kind from what is open already; otherwise the problem says why not. Of a file that is
// larger than its kind allows, it reads enough for Read to report that.
func ReadFrom(name string, from io.Reader, kind *Kind) (File, *Problem) {
	content, err := io.ReadAll(io.LimitReader(from, kind.MaxSize+1))
	if err != nil {
		return File{}, Unreadable(name, kind.Noun, err)
	}
	return File{Name: name, Content: content}, nil
}

// Unreadable returns the problem that a file, or a directory, cannot be read.
func Unreadable(name, noun string, err error) *Problem {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the problem names the path already
	}
	return &Problem{File: name, Message: "read " + noun + ": " + err.Error()}
}

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
	problem := func(severity Severity, message string, hints ...string) (File, *Problem) {
		return File{}, &Problem{File: path, Severity: severity, Message: message, Hints: hints}
	}
	unread := func(err error) (File, *Problem) {
		if pathError, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathError.Err // the problem names the path already
		}
		return problem(Error, "read "+kind.Noun+": "+err.Error())
	}
	// Stat before Open: to open a named pipe would wait for a writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unread(err)
	case info.IsDir() && kind.Directory != "":
		return problem(Warning, "left out: "+kind.Directory)
	case !info.Mode().IsRegular():
		return problem(Warning, "left out: not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return unread(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // another file than before, perhaps
		return unread(err)
	}
	content, err := io.ReadAll(io.LimitReader(f, kind.MaxSize+1))
	if err != nil {
		return unread(err)
	}
	if int64(len(content)) > kind.MaxSize {
		return problem(Error, kind.tooLarge(), kind.TooLarge)
	}
	return File{Name: path, Content: content, Info: info}, nil
}

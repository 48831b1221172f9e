package poll

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// clockStep is longer than a tick of the clock of any file system. A younger file can change without a new time.
const clockStep = 2 * time.Second

// ErrNotRegular is why a directory, a device or a pipe is not read.
var ErrNotRegular = errors.New("not a regular file")

// File is what a reading found of a file.
type File struct {
	// Name is the path by which the file was opened.
	Name    string
	Content []byte
	// Info describes the file; nil if there is none.
	Info fs.FileInfo
	// Err is why the file could not be read.
	Err error
	// Place is the path with all links followed. It has a new value after a link was swapped, as in a ConfigMap.
	Place string
	// InPlace means that the file may have been written to since it got its name, so that it may be incomplete.
	InPlace bool
	// Since is the time of the first reading in a row with this result.
	Since time.Time

	hash [sha256.Size]byte // of Content, or of the text of Err
	at   time.Time         // of the last reading of the bytes
}

// Generation is a short hash of the content, or of the reason why there is none.
func (f *File) Generation() string { return hex.EncodeToString(f.hash[:6]) }

// Read returns at most maxSize+1 bytes of a regular file. It returns ErrNotRegular with the info of another file.
func Read(path string, maxSize int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // before Open, because opening a named pipe waits for a writer
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
		if info.IsDir() {
			err = fmt.Errorf("%w: it is a directory", err)
		}
		return nil, info, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // the file may have been replaced since the first Stat
		return nil, nil, err
	}
	content := bytes.NewBuffer(make([]byte, 0, min(info.Size(), maxSize)+bytes.MinRead))
	_, err = content.ReadFrom(io.LimitReader(f, maxSize+1))
	return content.Bytes(), info, err
}

// readAgain reads a file, unless it cannot have changed since the last reading. It keeps one copy of equal bytes.
func readAgain(path string, maxSize int64, last File) File {
	f := File{Name: path, at: time.Now()}
	f.Place, _ = filepath.EvalSymlinks(path)
	info, err := os.Stat(path)
	if err == nil && last.Err == nil && os.SameFile(info, last.Info) && info.Size() == last.Info.Size() &&
		info.ModTime().Equal(last.Info.ModTime()) && last.at.Sub(info.ModTime()) > clockStep {
		last.Place = f.Place
		return last
	}
	f.Since = f.at
	if f.Content, f.Info, f.Err = Read(path, maxSize); f.Err != nil {
		f.hash = sha256.Sum256([]byte("error: " + f.Err.Error()))
	} else {
		f.hash = sha256.Sum256(f.Content)
		f.InPlace = !renamedAfter(f.Info.ModTime(), f)
	}
	same := f.hash == last.hash
	if same {
		f.Content, f.Since = last.Content, last.Since
	}
	// Another change in the directory must not hide a write.
	f.InPlace = f.InPlace || os.SameFile(f.Info, last.Info) && (last.InPlace || !same)
	return f
}

// renamedAfter reports whether a file, or the link to it, was renamed into place after it was last written. A rename
// changes the directory; a write to a file does not. So the directory of a renamed file is newer than the file. A
// rename in the same tick of the file system's clock (1 to 10 ms) is not detected, which costs a delay at most.
func renamedAfter(written time.Time, f File) bool {
	return f.Place != "" && slices.ContainsFunc([]string{f.Name, f.Place}, func(name string) bool {
		dir, err := os.Stat(filepath.Dir(name))
		return err == nil && dir.ModTime().After(written)
	})
}

//go:build !unix || solaris || aix

package keyfile

import (
	"io/fs"
	"os"
)

// lockDirectory does nothing where there is no flock: of two changes of keys at the same moment, one can be lost.
func lockDirectory(string) (unlock func(), err error) { return func() {}, nil }

func syncDirectory(string) error { return nil }

func keepOwner(fs.FileInfo, *os.File) error { return nil }

//go:build !unix || solaris || aix

package keyfile

import (
	"io/fs"
	"os"
)

// lockDirectory does nothing without flock: of two concurrent changes, one can be lost.
func lockDirectory(string) (unlock func(), err error) { return func() {}, nil }

func syncDirectory(string) error { return nil }

func keepOwner(fs.FileInfo, *os.File) error { return nil }

//go:build !unix || solaris || aix

package main

import (
	"io/fs"
	"os"
)

// lockDirectory does nothing where there is no flock: two who change keys at the same moment may lose one change.
func lockDirectory(string) (unlock func(), err error) { return func() {}, nil }

func keepOwner(fs.FileInfo, *os.File) error { return nil }

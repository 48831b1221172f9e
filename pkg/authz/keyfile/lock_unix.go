//go:build unix && !solaris && !aix

package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// lockDirectory waits until no other process changes key files in a directory. A change may replace the file.
func lockDirectory(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}

// syncDirectory writes the entries of a directory to disk, so that they survive a crash.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// keepOwner gives a file the owner and group of another one.
func keepOwner(of fs.FileInfo, file *os.File) error {
	want, ok := of.Sys().(*syscall.Stat_t)
	if !ok || (int(want.Uid) == os.Geteuid() && int(want.Gid) == os.Getegid()) {
		return nil
	}
	return file.Chown(int(want.Uid), int(want.Gid))
}

package memstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// saveEvery saves a snapshot after every interval until ctx is done.
func (s *Store) saveEvery(ctx context.Context, interval time.Duration) {
	poll.Every(ctx, interval, func() {
		if err := s.save(); err != nil {
			s.logger.ErrorContext(ctx, "the snapshot of the buckets was not saved; the last one is kept", slog.Any("error", err))
		}
	})
}

// save writes a snapshot beside the last one, then replaces that, so that there is a whole snapshot at any time. The
// name of the new file is always the same: if the process dies here, it leaves at most one file behind.
func (s *Store) save() error {
	temporary := s.snapshotPath + ".tmp"
	err := s.writeFile(temporary)
	if err == nil {
		err = os.Rename(temporary, s.snapshotPath)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(s.snapshotPath))
	} else {
		_ = os.Remove(temporary) // it may not exist
	}
	if err != nil {
		s.failedSnapshots.Add(1)
		return fmt.Errorf("save snapshot %s: %w", s.snapshotPath, err)
	}
	s.snapshots.Add(1)
	return nil
}

// writeFile writes a snapshot to a file and waits until it is on the disk.
func (s *Store) writeFile(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = s.writeSnapshot(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// load restores the snapshot, if there is one, and checks that the next one can be written. A damaged file is set
// aside and reported, and the store is then empty.
func (s *Store) load(maxBuckets int) error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	f, err := os.Open(s.snapshotPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load snapshot: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("load snapshot: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("load snapshot %s: not a regular file", s.snapshotPath)
	}
	reason := s.readSnapshot(f, info.Size())
	if reason == nil {
		return nil
	}
	if !errors.Is(reason, errUnsound) {
		return fmt.Errorf("load snapshot %s: %w", s.snapshotPath, reason)
	}
	if s.table, err = table.New[struct{}, extra](maxBuckets); err != nil { // drop what was already restored
		return err
	}
	aside := s.snapshotPath + ".corrupt-" + time.UnixMicro(s.clock()).UTC().Format("20060102T150405.000000Z")
	if err := os.Rename(s.snapshotPath, aside); err != nil {
		return fmt.Errorf("set a snapshot aside that cannot be used (%w): %w", reason, err)
	}
	s.logger.Error("the snapshot of the buckets cannot be used and was set aside; all buckets start with their full quota",
		slog.String("path", s.snapshotPath), slog.String("set_aside_as", aside), slog.Any("error", reason))
	return nil
}

// checkWritable reports at the start an error that would otherwise lose the first snapshot.
func (s *Store) checkWritable() error {
	f, err := os.CreateTemp(filepath.Dir(s.snapshotPath), filepath.Base(s.snapshotPath)+".check-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("snapshots cannot be saved as %s: %w", s.snapshotPath, err)
	}
	return nil
}

// syncDirectory waits until a renamed file has its name on the disk.
func syncDirectory(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// ErrNoKey says that a file has no key with the id.
var ErrNoKey = errors.New("no key with this id")

// Add adds keys to the file at a path, all or none. It makes the file if there is none. An id or a weak key that is
// there already is an error.
func Add(path string, records ...apikey.Record) error {
	return update(path, func(c *contents) ([]apikey.Record, error) {
		weak := map[apikey.Hash]string{}
		for _, r := range c.records {
			if r.Weak {
				weak[r.Hash] = r.ID
			}
		}
		for _, r := range records {
			if _, taken := c.index[r.ID]; taken {
				return nil, fmt.Errorf("there is a key with the id %q already", r.ID)
			}
			if other, taken := weak[r.Hash]; taken && r.Weak {
				return nil, fmt.Errorf("%q and %q are the same weak key", other, r.ID)
			}
			c.index[r.ID], weak[r.Hash] = len(c.index), r.ID
		}
		return records, nil
	})
}

// Change replaces the key with an id by what change makes of it. The error is ErrNoKey if there is none, or the one
// of change.
func Change(path, id string, change func(*apikey.Record) error) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return update(path, func(c *contents) ([]apikey.Record, error) {
		i, known := c.index[id]
		if !known {
			return nil, ErrNoKey
		}
		r := c.records[i]
		err := change(&r)
		return []apikey.Record{r}, err
	})
}

// update writes what change returns: new records, and new ones in the place of others. No other process changes the
// file meanwhile.
func update(path string, change func(*contents) ([]apikey.Record, error)) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	content, _, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c := contents{index: map[string]int{}}
	if len(content) > 0 {
		if c, err = parse(path, content); err != nil {
			return err
		}
	}
	changed, err := change(&c)
	if err != nil {
		return err
	}
	version := max(c.version+1, time.Now().UnixMicro())
	for i := range changed {
		changed[i].Version = version
	}
	added, err := encode(changed)
	if err != nil {
		return err
	}
	lines, keys := c.lines+len(changed), len(c.index)
	full := c.body+len(added)+len(endMark) >= maxSize
	if len(content) > 0 && !full && lines-keys <= lines/2 {
		return appendTo(path, c.body, added)
	}
	whole, err := encode(c.with(changed))
	if err != nil {
		return err
	}
	if len(whole)+len(endMark) >= maxSize {
		return tooLarge(path)
	}
	err = replace(path, whole)
	if err != nil && len(content) > 0 && !full {
		return appendTo(path, c.body, added) // a directory that cannot be written to keeps no key from being revoked
	}
	return err
}

// with returns the records with the changed ones in their places, and new ones at the end.
func (c *contents) with(changed []apikey.Record) []apikey.Record {
	for _, r := range changed {
		if i := c.index[r.ID]; i < len(c.records) {
			c.records[i] = r
		} else {
			c.records = append(c.records, r)
		}
	}
	return c.records
}

// encode returns the lines of records. A record that did not change keeps its version: if the file is an older copy, it
// has to look like one.
func encode(records []apikey.Record) ([]byte, error) {
	var lines []byte
	for i := range records {
		line, err := records[i].Encode()
		if err != nil {
			return nil, err
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}

// appendTo puts lines in the place of the end mark, which begins at a byte, and a new one behind them. If that is not
// possible, the file is as it was.
func appendTo(path string, end int, lines []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := writeEnd(f, end, lines); err != nil {
		return errors.Join(err, writeEnd(f, end, nil))
	}
	return nil
}

// writeEnd writes lines and the end mark from a byte of the file on, which then ends.
func writeEnd(f *os.File, from int, lines []byte) error {
	tail := append(lines, endMark+"\n"...)
	if _, err := f.WriteAt(tail, int64(from)); err != nil {
		return err
	}
	if err := f.Truncate(int64(from + len(tail))); err != nil {
		return err
	}
	return f.Sync()
}

// newFileMode is the mode of a new file: it is for the service and for those who make keys.
const newFileMode = 0o600

// replace puts a new file with some lines in the place of the one at a path. Readers see one or the other.
func replace(path string, lines []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".extauthz-keys-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if err := keepMode(path, f); err != nil {
		return err
	}
	if err := writeEnd(f, 0, lines); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return errors.Join(f.Close(), syncDirectory(filepath.Dir(path)))
}

// keepMode gives a new file the mode and the owner of the one whose place it takes, so that the service can still
// read it.
func keepMode(path string, f *os.File) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.Chmod(newFileMode)
	}
	if err != nil {
		return err
	}
	if err := keepOwner(info, f); err != nil {
		return fmt.Errorf("keep the owner of %s: %w (edit it as its owner, or as root)", path, err)
	}
	return f.Chmod(info.Mode().Perm())
}

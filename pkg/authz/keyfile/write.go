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

// Add adds keys to a file, all or none. It makes the file. An id or a weak key that the file has already is an error.
func Add(path string, records ...apikey.Record) error {
	return update(path, func(c *contents, put func(apikey.Record) error) error {
		for _, r := range records {
			if _, taken := c.index[r.ID]; taken {
				return fmt.Errorf("there is a key with the id %q already", r.ID)
			}
			if err := put(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// Change applies change to the key with an id.
func Change(path, id string, change func(*apikey.Record) error) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return update(path, func(c *contents, put func(apikey.Record) error) error {
		i, known := c.index[id]
		if !known {
			return errors.New("no key with this id")
		}
		r := c.records[i]
		if err := change(&r); err != nil {
			return err
		}
		return put(r)
	})
}

// update writes the records that change passes to put. No other process changes the file meanwhile.
func update(path string, change func(c *contents, put func(apikey.Record) error) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	content, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c := newContents(0)
	if len(content) > 0 {
		if c, err = parse(path, content); err != nil {
			return err
		}
	}
	c.version = max(c.version+1, time.Now().UnixMicro())
	var changed []apikey.Record
	err = change(c, func(r apikey.Record) error {
		r.Version = c.version
		changed = append(changed, r)
		return c.put(r)
	})
	if err != nil {
		return err
	}
	added, err := encode(changed)
	if err != nil {
		return err
	}
	lines := c.lines + len(changed)
	full := c.body+len(added)+len(endMark) >= maxSize
	if len(content) > 0 && !full && lines-len(c.index) <= lines/2 {
		return appendTo(path, c.body, added)
	}
	whole, err := encode(c.records)
	if err != nil {
		return err
	}
	if len(whole)+len(endMark) >= maxSize {
		return tooLarge(path)
	}
	err = replace(path, whole)
	if err != nil && len(content) > 0 && !full {
		return appendTo(path, c.body, added) // so that keys can be revoked in a directory that is read-only
	}
	return err
}

// encode returns lines. An unchanged record keeps its version, so that an older copy is recognized as one.
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

// appendTo writes lines and a new end mark over the end mark at a byte. After an error, the file is as it was.
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

// writeEnd replaces the file from a byte on with lines and the end mark.
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

// newFileMode is the mode of a new file. The service and `extauthz keys` run as its owner.
const newFileMode = 0o600

// replace replaces the file at a path by a new one with these lines. Readers see one of the two.
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

// keepMode gives a new file the mode and owner of the one it replaces, so that the service can still read it.
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

package memstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A snapshot is the line `extauthz buckets 3`, 3 being the version, and blocks: the length of the content (32 bits, little
// endian), the content, and the CRC-32C of everything before it in the file.
const (
	snapshotTitle   = "extauthz buckets "
	snapshotVersion = "3\n"
)

// maxBlock is what no block is longer than: one bucket with a log and a key of some megabytes.
const maxBlock = 1 << 26

// unsoundError says why a file is not a snapshot that can be used; any other error says that it could not be read.
type unsoundError struct{ reason string }

func (e *unsoundError) Error() string { return e.reason }

func unsound(format string, args ...any) error { return &unsoundError{fmt.Sprintf(format, args...)} }

// blockWriter writes blocks, and keeps the checksum of all it has written.
type blockWriter struct {
	w   io.Writer
	sum uint32
}

func (w *blockWriter) title() error { return w.bytes([]byte(snapshotTitle + snapshotVersion)) }

func (w *blockWriter) write(content []byte) error {
	if len(content) > maxBlock {
		return fmt.Errorf("a block of %d bytes: a key is too long", len(content))
	}
	if err := w.bytes(binary.LittleEndian.AppendUint32(nil, uint32(len(content)))); err != nil {
		return err
	}
	if err := w.bytes(content); err != nil {
		return err
	}
	_, err := w.w.Write(binary.LittleEndian.AppendUint32(nil, w.sum))
	return err
}

func (w *blockWriter) bytes(b []byte) error {
	w.sum = checksum(w.sum, b)
	_, err := w.w.Write(b)
	return err
}

// blockReader reads what blockWriter writes. Its errors are unsoundErrors, or else those of the reader.
type blockReader struct {
	r   io.Reader
	sum uint32
	n   int // the number of the block that was read last
	buf bytes.Buffer
}

func (r *blockReader) title() error {
	got := make([]byte, len(snapshotTitle+snapshotVersion))
	n, err := io.ReadFull(r.r, got)
	switch {
	case !bytes.HasPrefix([]byte(snapshotTitle), got[:min(n, len(snapshotTitle))]):
		return unsound("it is not a snapshot of buckets: it begins with %q", got[:n])
	case err != nil:
		return cutOff(err, "within its first line")
	case string(got[len(snapshotTitle):]) != snapshotVersion:
		return unsound("it is of version %q, want %q", got[len(snapshotTitle):], snapshotVersion)
	}
	r.sum = checksum(0, got)
	return nil
}

// read returns the content of the next block, until the next call.
func (r *blockReader) read() ([]byte, error) {
	r.n++
	where := fmt.Sprintf("in block %d", r.n)
	length, err := r.number()
	if err != nil {
		return nil, cutOff(err, where)
	}
	if length > maxBlock {
		return nil, unsound("block %d claims to be %d bytes long", r.n, length)
	}
	r.sum = checksum(r.sum, binary.LittleEndian.AppendUint32(nil, length))
	r.buf.Reset()
	if _, err := io.CopyN(&r.buf, r.r, int64(length)); err != nil { // allocates what is there, not what is claimed
		return nil, cutOff(err, where)
	}
	r.sum = checksum(r.sum, r.buf.Bytes())
	sum, err := r.number()
	if err != nil {
		return nil, cutOff(err, where)
	}
	if sum != r.sum {
		return nil, unsound("the checksum of block %d is wrong", r.n)
	}
	return r.buf.Bytes(), nil
}

// end makes sure that nothing follows.
func (r *blockReader) end() error {
	n, err := io.ReadFull(r.r, make([]byte, 1))
	switch {
	case n > 0:
		return unsound("something follows its last block")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

func (r *blockReader) number() (uint32, error) {
	var b [4]byte
	_, err := io.ReadFull(r.r, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func cutOff(err error, where string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unsound("it is cut off %s", where)
	}
	return err
}

// checksum is the CRC-32C of b after what sum is that of.
func checksum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}

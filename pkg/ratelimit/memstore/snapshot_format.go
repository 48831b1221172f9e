package memstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// A snapshot is this line, which names the version of the format, then the buckets, then the CRC-32C of both.
const snapshotTitle = "extauthz buckets 5\n"

// titleWithoutHolds is that of the version before, which has no savedHolds.
const titleWithoutHolds = "extauthz buckets 4\n"

// saved is a bucket in a snapshot. Its savedHolds, its key, the grants of its log and its holds follow. All numbers are
// little endian. In front of the key of a bucket.CalendarWindow is the name of the calendar, with a line break.
type saved struct {
	Rule                    uint64
	Requests, Window, Burst int64 // of the limit
	Algorithm               bucket.Algorithm
	Last, Count, Part       int64
	Expires                 table.Expiry
	KeyLen, Grants          uint32
}

// savedHolds is how many live holds a bucket has, and Holds.Release.
type savedHolds struct {
	Number  uint32
	Release bool
}

// errUnsound is wrapped by the error for a damaged file. Any other error means that the file could not be read.
var errUnsound = errors.New("not a usable snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeSnapshot writes all buckets. It locks a few slots at a time; a concurrent charge may be in it or not.
func (s *Store) writeSnapshot(w io.Writer) error {
	sum := crc32.New(castagnoli)
	both := io.MultiWriter(w, sum)
	content := []byte(snapshotTitle)
	shards := s.table.Shards()
	for i := range shards {
		for from, more := uint32(0), true; more; content = content[:0] {
			content, from, more = appendFrom(content, &shards[i], from)
			if _, err := both.Write(content); err != nil {
				return err
			}
		}
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// lockedBytes ends a hold of the lock early, because logs can make a bucket large.
const lockedBytes = 1 << 16

// appendFrom appends buckets in the slots from one on, under one lock. next is the next slot.
func appendFrom(b []byte, sh *shard, from uint32) (content []byte, next uint32, more bool) {
	var fixed saved // room for the part of each bucket that has a fixed size
	var state bucket.State
	var log []bucket.Grant
	next, more = sh.EachFrom(from, func(slot uint32) bool {
		log = log[:0]
		sh.State(slot, &state, &log)
		x, limit := sh.Extra(slot), sh.Limit(slot)
		key, live, holds := x.key, x.holds.Live(), savedHolds{}
		if len(live) > 0 {
			holds = savedHolds{Number: uint32(len(live)), Release: x.holds.Release}
		}
		if limit.Calendar != nil {
			key = limit.Calendar.String() + "\n" + key
		}
		fixed = saved{
			Rule: sh.Rule(slot), Requests: limit.Requests, Window: limit.Window, Burst: limit.Burst,
			Algorithm: limit.Algorithm, Last: state.Last, Count: state.Count, Part: state.Part,
			Expires: sh.Expires(slot), KeyLen: uint32(len(key)), Grants: uint32(len(state.Grants)),
		}
		b, _ = binary.Append(b, binary.LittleEndian, &fixed) // no error: its size is fixed
		b, _ = binary.Append(b, binary.LittleEndian, &holds)
		b = append(b, key...)
		b, _ = binary.Append(b, binary.LittleEndian, state.Grants)
		b, _ = binary.Append(b, binary.LittleEndian, live)
		return len(b) < lockedBytes
	})
	return b, next, more
}

// readSnapshot restores all buckets that have not expired, before the store is in use. It reads the file twice,
// because it must check the checksum before it can trust the content.
func (s *Store) readSnapshot(f io.ReaderAt, size int64) error {
	title := make([]byte, len(snapshotTitle))
	n, err := f.ReadAt(title, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if t := string(title[:n]); t != snapshotTitle && t != titleWithoutHolds {
		return fmt.Errorf("%w: it begins with %q, want %q", errUnsound, title[:n], snapshotTitle)
	}
	sum, content := crc32.New(castagnoli), io.NewSectionReader(f, 0, size-crc32.Size)
	if _, err := io.Copy(sum, content); err != nil {
		return err
	}
	end := make([]byte, crc32.Size)
	if _, err := f.ReadAt(end, content.Size()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), end) {
		return fmt.Errorf("%w: its checksum is wrong, so it has been cut off or changed", errUnsound)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(content, int64(n), content.Size()-int64(n)), 1<<16)
	return s.restoreAll(r, string(title[:n]) != titleWithoutHolds)
}

// restoreAll restores buckets to the end of r.
func (s *Store) restoreAll(r io.Reader, withHolds bool) error {
	var b saved
	var h savedHolds
	var rest bytes.Buffer // the parts of any size; it grows with the bytes that exist, not with the claimed length
	now, grantSize, holdSize := s.clock(), int64(binary.Size(bucket.Grant{})), int64(binary.Size(bucket.HoldCost{}))
	for {
		err := binary.Read(r, binary.LittleEndian, &b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && withHolds {
			err = binary.Read(r, binary.LittleEndian, &h)
		}
		if err == nil {
			rest.Reset()
			_, err = io.CopyN(&rest, r, int64(b.KeyLen)+int64(b.Grants)*grantSize+int64(h.Number)*holdSize)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && !s.restore(&b, &h, &rest, now):
			return fmt.Errorf("%w: a bucket is unreadable although the checksum is right", errUnsound)
		case err != nil:
			return err
		}
	}
}

// restore stores a bucket unless it has expired, and reports whether it is valid. A later bucket with the same key
// wins, because it was saved later.
func (s *Store) restore(b *saved, h *savedHolds, rest *bytes.Buffer, now int64) bool {
	take := bucket.Take{Key: string(rest.Next(int(b.KeyLen))), Rule: b.Rule, Limit: bucket.Limit{
		Requests: b.Requests, Window: b.Window, Burst: b.Burst, Algorithm: b.Algorithm,
	}, Hold: &bucket.Hold{}}
	if b.Algorithm == bucket.CalendarWindow {
		var name string
		var err error
		name, take.Key, _ = strings.Cut(take.Key, "\n")
		if take.Limit.Calendar, err = bucket.CalendarNamed(name); err != nil { // its zone is not known any more
			return true
		}
	}
	state := bucket.State{Last: b.Last, Count: b.Count, Part: b.Part, Grants: make([]bucket.Grant, b.Grants)}
	if b.Algorithm.HasBurst() {
		state.Rate = b.Requests
	}
	live := make([]bucket.HoldCost, h.Number)
	err := binary.Read(rest, binary.LittleEndian, state.Grants)
	if err == nil {
		err = binary.Read(rest, binary.LittleEndian, live)
	}
	ok := err == nil
	if ok && h.Number > 0 {
		if state.Holds, ok = bucket.HoldsOf(live); ok {
			state.Holds.Release = h.Release
		}
	}
	if !ok || take.Limit.Check() != nil ||
		b.Requests == 0 || b.Expires == 0 || state.Empty() || !state.Sound(b.Algorithm) {
		return false
	}
	if !b.Expires.Passed(now) {
		d := s.table.Digest(take.Key)
		sh := s.table.Shard(&d)
		sh.Lock()
		defer sh.Unlock()
		s.keep(sh, &take, &d, sh.Find(&d), &state, now, b.Expires)
	}
	return true
}

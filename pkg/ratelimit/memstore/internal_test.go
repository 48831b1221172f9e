package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestNoDamageGoesUnnoticed cuts a snapshot at every length, and flips each bit of every byte; in the short form, one.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	sound := snapshotOf(t, bucket.Algorithms...)
	for i := range sound {
		if err := read(t, sound[:i]); !isUnsound(err) {
			t.Errorf("cut off after %d bytes of %d: %v, want it to be refused", i, len(sound), err)
		}
		for bit := i % 8; bit < 8; bit += testenv.Steps(8, 1) {
			damaged := bytes.Clone(sound)
			damaged[i] ^= 1 << bit
			if err := read(t, damaged); !isUnsound(err) {
				t.Errorf("bit %d of byte %d of %d flipped: %v, want it to be refused", bit, i, len(sound), err)
			}
		}
	}
	if err := read(t, sound); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

// TestSnapshotOfTheVersionBefore loads a snapshot that has no holds, in the format without them.
func TestSnapshotOfTheVersionBefore(t *testing.T) {
	key, limit := "k", bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 7, Window: 3_600_000_000}
	content := []byte(titleWithoutHolds)
	content, _ = binary.Append(content, binary.LittleEndian, &saved{
		Requests: limit.Requests, Window: limit.Window, Algorithm: limit.Algorithm, Last: 5_000_000, Count: 3, Expires: 3600,
		KeyLen: uint32(len(key)),
	})
	content = append(content, key...)
	content = binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
	s := emptyStore(t, Config{Clock: func() int64 { return 6_000_000 }})
	if err := s.readSnapshot(bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	outcomes := make([]bucket.Outcome, 1)
	requests := []bucket.Request{{Takes: []bucket.Take{{Key: key, Limit: limit}}}}
	if s.Start(t.Context(), requests, outcomes, func() {}); outcomes[0].Decisions[0].Remaining != 4 {
		t.Errorf("%d of 7 remain, want 4", outcomes[0].Decisions[0].Remaining)
	}
}

// TestReadErrorIsNoDamage checks that a failing disk does not discard a good snapshot.
func TestReadErrorIsNoDamage(t *testing.T) {
	sound := snapshotOf(t, bucket.Algorithms...)
	for i := range sound {
		broken := errors.New("input/output error")
		err := emptyStore(t, Config{}).readSnapshot(failingReader{sound[:i], broken}, int64(len(sound)))
		if !errors.Is(err, broken) || isUnsound(err) {
			t.Errorf("a read error after %d bytes: %v, want that error", i, err)
		}
	}
}

// failingReader is a file of which only the beginning is readable.
type failingReader struct {
	readable []byte
	err      error
}

func (r failingReader) ReadAt(b []byte, offset int64) (int, error) {
	n := copy(b, r.readable[min(offset, int64(len(r.readable))):])
	if n < len(b) {
		return n, r.err
	}
	return n, nil
}

// FuzzBuckets reads any bytes as buckets with a correct checksum. They are refused or loaded; loaded buckets can be
// decided on and saved again.
func FuzzBuckets(f *testing.F) {
	for _, algorithm := range bucket.Algorithms {
		s := emptyStore(f, Config{})
		use(s, algorithm)
		shards := s.table.Shards()
		for i := range shards {
			if content, _, _ := appendFrom(nil, &shards[i], 0); len(content) > 0 {
				f.Add(content)
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		content = append([]byte(snapshotTitle), content...)
		content = binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
		s := emptyStore(t, Config{Clock: func() int64 { return 1_000_000 }})
		if err := s.readSnapshot(bytes.NewReader(content), int64(len(content))); err != nil && !isUnsound(err) {
			t.Fatalf("%v, want it to be loaded or refused", err)
		}
		var again bytes.Buffer
		if err := s.writeSnapshot(&again); err != nil {
			t.Fatal(err)
		}
		if err := read(t, again.Bytes()); err != nil {
			t.Fatalf("what was loaded and saved is refused: %v", err)
		}
		shards := s.table.Shards()
		for i := range shards {
			sh, takes := &shards[i], []bucket.Take(nil)
			sh.Each(func(slot uint32) {
				takes = append(takes, bucket.Take{
					Key: sh.Extra(slot).key, Limit: *sh.Limit(slot), Cost: 1, Refund: 1, CountDenied: true,
				})
			})
			for _, t := range takes {
				takeOne(s, t)
			}
		}
	})
}

// emptyStore returns a store that could save a snapshot.
func emptyStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.keys = true
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func use(s *Store, algorithms ...bucket.Algorithm) {
	for _, algorithm := range append(algorithms[:len(algorithms):len(algorithms)], bucket.CalendarWindow) {
		limit := bucket.Limit{Algorithm: algorithm, Requests: 7, Burst: 9, Window: 3_600_000_000}
		if algorithm == bucket.CalendarWindow {
			limit.Calendar, _ = bucket.CalendarNamed("year@Europe/Berlin")
		}
		for range 2 {
			takeOne(s, bucket.Take{Key: fmt.Sprint(uint8(algorithm)), Limit: limit, Cost: 2})
		}
		takeOne(s, bucket.Take{Key: fmt.Sprint(uint8(algorithm)), Limit: limit, Hold: &bucket.Hold{
			TTL: 60_000_000, Most: 10, Release: algorithm == bucket.FixedWindow,
			Reserves: []bucket.HoldCost{{Cost: 1}, {Cost: 1}},
		}})
	}
}

// Sweep drops the expired buckets now.
func Sweep(s *Store) {
	shards := s.table.Shards()
	for i := range shards {
		shards[i].Each(func(slot uint32) { shards[i].Expire(slot, s.clock()) })
	}
}

func takeOne(s *Store, t bucket.Take) {
	s.Start(context.Background(), []bucket.Request{{Takes: []bucket.Take{t}}}, make([]bucket.Outcome, 1), func() {})
}

func snapshotOf(t testing.TB, algorithms ...bucket.Algorithm) []byte {
	t.Helper()
	s := emptyStore(t, Config{})
	use(s, algorithms...)
	var b bytes.Buffer
	if err := s.writeSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t testing.TB, snapshot []byte) error {
	t.Helper()
	s := emptyStore(t, Config{})
	return s.readSnapshot(bytes.NewReader(snapshot), int64(len(snapshot)))
}

func isUnsound(err error) bool { return errors.Is(err, errUnsound) }

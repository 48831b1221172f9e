package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// keysOfAllKinds are short, as long as an entry holds, longer, empty, and not text.
var keysOfAllKinds = []string{
	"k", strings.Repeat("i", 78), strings.Repeat("l", 79), strings.Repeat("long ", 1000), "", "\x00\xff\n\x80",
}

func mustNew(t *testing.T, cfg memstore.Config) *memstore.Store {
	t.Helper()
	s, err := memstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t *testing.T, s *memstore.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// useAll takes from buckets of all algorithms, with small and large limits and keys of all kinds, and returns the
// decisions.
func useAll(t *testing.T, s *memstore.Store, now *clock) []bucket.Decision {
	t.Helper()
	var answers []bucket.Decision
	for round := range 3 {
		for _, algorithm := range bucket.Algorithms {
			largest := algorithm.Most()
			days, err := bucket.CalendarNamed("day@America/Havana")
			if err != nil {
				t.Fatal(err)
			}
			for i, limit := range []bucket.Limit{
				{Algorithm: bucket.CalendarWindow, Requests: 7, Window: 86_400 * second, Calendar: days},
				{Algorithm: algorithm, Requests: 7, Burst: 20, Window: hour},
				{Algorithm: algorithm, Requests: largest, Burst: largest, Window: 86_400 * second},
				{Algorithm: algorithm, Requests: 1, Burst: 1, Window: bucket.MaxWindow},
			} {
				for _, k := range keysOfAllKinds {
					r := take(t, s, bucket.Take{
						Key: fmt.Sprint(k, algorithm, i), Limit: limit, Cost: uint64(limit.Requests/5 + 1),
						CountDenied: round == 1,
					})
					answers = append(answers, r.Decisions[0])
				}
			}
		}
		now.advance(7*minute + 13)
	}
	return answers
}

// TestSnapshotRoundTrip checks that a store that was closed and opened again decides as one that was not.
func TestSnapshotRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buckets")
	now, nowOfOther := newClock(), newClock()
	s := mustNew(t, memstore.Config{SnapshotPath: path, Clock: now.now})
	other := open(t, memstore.Config{Clock: nowOfOther.now})
	for life := range 4 {
		want, got := useAll(t, other, nowOfOther), useAll(t, s, now)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("answers in life %d (-never closed +reopened):\n%s", life, diff)
		}
		before := s.Stats().Buckets
		mustClose(t, s)
		s = mustNew(t, memstore.Config{SnapshotPath: path, Clock: now.now})
		if after := s.Stats().Buckets; after != before {
			t.Fatalf("life %d: %d buckets before Close, %d after New", life, before, after)
		}
	}
	mustClose(t, s)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the snapshot, which holds keys, has mode %o, want 600", got)
	}
	wantFiles(t, path, "buckets")
}

func TestExpiredBucketsAreNotLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buckets")
	now := newClock()
	s := mustNew(t, memstore.Config{SnapshotPath: path, Clock: now.now})
	for i, window := range []int64{minute, minute, 86_400 * second} {
		limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 10, Window: window}
		take(t, s, bucket.Take{Key: key(i), Limit: limit, Cost: 1})
	}
	mustClose(t, s)
	now.advance(10 * minute)
	s = open(t, memstore.Config{SnapshotPath: path, Clock: now.now})
	if got := s.Stats().Buckets; got != 1 {
		t.Errorf("%d buckets loaded, want the one that has not expired", got)
	}
}

func TestSnapshotOfALargerStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buckets")
	s := mustNew(t, memstore.Config{SnapshotPath: path})
	fill(s, 10_000, hourly(bucket.TokenBucket, 2))
	mustClose(t, s)
	s = open(t, memstore.Config{SnapshotPath: path, MaxBuckets: 3000})
	if got := s.Stats().Buckets; got > 3000 || got < 2500 {
		t.Errorf("%d buckets loaded into a store of 3000, want nearly all it has room for", got)
	}
}

// smallSnapshot returns a snapshot of a few buckets of all algorithms.
func smallSnapshot(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "buckets")
	s := mustNew(t, memstore.Config{SnapshotPath: path})
	for _, algorithm := range bucket.Algorithms {
		take(t, s, bucket.Take{Key: algorithm.String(), Limit: hourly(algorithm, 10), Cost: 2})
	}
	mustClose(t, s)
	snapshot, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func TestUnsoundSnapshotIsSetAside(t *testing.T) {
	sound := smallSnapshot(t)
	for _, test := range []struct {
		name    string
		content []byte
		reason  string
	}{
		{"empty", nil, `it begins with \"\", want \"extauthz buckets 5\\n\"`},
		{"cut off in the first line", sound[:9], `it begins with \"extauthz \", want`},
		{"cut off after the first line", sound[:len("extauthz buckets 5\n")], "its checksum is wrong"},
		{"cut off in a bucket", sound[:60], "its checksum is wrong"},
		{"without the last byte", sound[:len(sound)-1], "its checksum is wrong"},
		{"foreign", []byte("domain: shop\ndescriptors: []\n"), `it begins with \"domain: shop\\ndescri\", want`},
		{"foreign and short", []byte("{}"), `it begins with \"{}\", want`},
		{"of another version", append([]byte("extauthz buckets 3\n"), sound[19:]...),
			`it begins with \"extauthz buckets 3\\n\", want`},
		{"with something behind it", append(bytes.Clone(sound), '\n'), "its checksum is wrong"},
		{"twice", append(bytes.Clone(sound), sound...), "its checksum is wrong"},
		{"with a flipped bit", flipped(sound, 50), "its checksum is wrong"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "buckets")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s := mustNew(t, memstore.Config{SnapshotPath: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for _, part := range []string{test.reason, "path=" + path + " ", "set_aside_as=" + path + ".corrupt-"} {
				if !strings.Contains(log.String(), part) {
					t.Errorf("log: %s\nwant it to contain %s", &log, part)
				}
			}
			if got := s.Stats(); got != (memstore.Stats{}) {
				t.Errorf("%+v, want an empty store", got)
			}
			aside, err := filepath.Glob(path + ".corrupt-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("set aside: %q, %v; want one file", aside, err)
			}
			if got, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(got, test.content) {
				t.Errorf("the file that was set aside has changed (%v)", err)
			}
			mustClose(t, s)
			log.Reset()
			mustClose(t, mustNew(t, memstore.Config{SnapshotPath: path, Logger: slog.New(slog.NewTextHandler(&log, nil))}))
			if log.Len() > 0 {
				t.Errorf("the next start logs: %s", &log)
			}
		})
	}
}

func flipped(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x80
	return b
}

func TestImpossibleSnapshotPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, path, want string }{
		{"in a missing directory", filepath.Join(dir, "none", "buckets"),
			"snapshots cannot be saved as " + filepath.Join(dir, "none", "buckets")},
		{"in a file", filepath.Join(file, "buckets"), "snapshots cannot be saved as " + filepath.Join(file, "buckets")},
		{"a directory", dir, "load snapshot " + dir + ": not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := memstore.New(memstore.Config{SnapshotPath: test.path})
			if err == nil {
				mustClose(t, s)
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: %v\nwant: %s", err, test.want)
			}
		})
	}
	wantFiles(t, file, "file")
}

// TestSavedEveryInterval checks that a crash loses only the charges since the last save.
func TestSavedEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "buckets")
		limit := hourly(bucket.FixedWindow, 10)
		s := open(t, memstore.Config{SnapshotPath: path})
		take(t, s, bucket.Take{Key: "k", Limit: limit, Cost: 3})
		time.Sleep(time.Minute)
		synctest.Wait()
		take(t, s, bucket.Take{Key: "k", Limit: limit, Cost: 4})
		if got := s.Stats().Snapshots; got != 1 {
			t.Fatalf("%d snapshots after a minute, want 1", got)
		}
		crashed := filepath.Join(t.TempDir(), "buckets")
		if err := os.Link(path, crashed); err != nil {
			t.Fatal(err)
		}
		// the process died during the next save
		if err := os.WriteFile(crashed+".tmp", []byte("half a snap"), 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, memstore.Config{SnapshotPath: crashed})
		if got := take(t, again, bucket.Take{Key: "k", Limit: limit}).Decisions[0].Remaining; got != 7 {
			t.Errorf("%d left of 10 after a crash, want 7: 3 were charged before the save, 4 after it", got)
		}
	})
}

// TestFailedSaveKeepsTheLastSnapshot checks that a failed save is logged and counted, and that the store goes on.
func TestFailedSaveKeepsTheLastSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "buckets")
		var log bytes.Buffer
		s := mustNew(t, memstore.Config{SnapshotPath: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		take(t, s, bucket.Take{Key: "k", Limit: hourly(bucket.FixedWindow, 10), Cost: 3})
		time.Sleep(time.Minute)
		synctest.Wait()
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		obstacle := filepath.Join(path+".tmp", "obstacle")
		if err := os.MkdirAll(obstacle, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		errClose := s.Close()
		if errClose == nil || !strings.Contains(errClose.Error(), "save snapshot "+path) {
			t.Errorf("Close: %v, want an error that names the snapshot", errClose)
		}
		if got := s.Close(); !errors.Is(got, errClose) {
			t.Errorf("second Close: %v, want the same as of the first", got)
		}
		if got := s.Stats(); got.Snapshots != 1 || got.FailedSnapshots != 3 {
			t.Errorf("%+v, want 1 snapshot and 3 that failed", got)
		}
		if got := strings.Count(log.String(), "was not saved"); got != 2 {
			t.Errorf("%d lines of log, want one for each that Close does not return:\n%s", got, &log)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the last good snapshot has changed (%v)", err)
		}
	})
}

// TestSaveAmidTraffic saves and sweeps all the time during many takes, and loads the last snapshot: no charge is lost
// or counted twice.
func TestSaveAmidTraffic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buckets")
	s := mustNew(t, memstore.Config{SnapshotPath: path, SnapshotInterval: time.Millisecond})
	const buckets = 500
	limits := make([]bucket.Limit, buckets)
	for i := range limits {
		// The window is decades, so that nothing refills meanwhile.
		limits[i] = bucket.Limit{
			Algorithm: bucket.Algorithms[i%len(bucket.Algorithms)],
			Requests:  1000, Burst: 1000, Window: 40 * 365 * 24 * hour,
		}
	}
	var charged [buckets]atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for s.Stats().Snapshots < 3 {
			memstore.Sweep(s)
		}
	})
	for g := range 8 {
		all.Go(func() {
			for i := 0; i < 5*buckets || s.Stats().Snapshots < 3; i++ {
				b := (i*(g+1) + g) % buckets
				if take(t, s, bucket.Take{Key: key(b), Limit: limits[b], Cost: 1}).Allowed {
					charged[b].Add(1)
				}
			}
		})
	}
	all.Wait()
	mustClose(t, s)
	s = open(t, memstore.Config{SnapshotPath: path})
	for b := range buckets {
		want := 1000 - charged[b].Load()
		if got := take(t, s, bucket.Take{Key: key(b), Limit: limits[b]}).Decisions[0].Remaining; got != want {
			t.Errorf("bucket %d (%v): %d left of 1000 after a restart, want %d", b, limits[b].Algorithm, got, want)
		}
	}
}

// wantFiles checks that no other file is left beside the snapshot.
func wantFiles(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

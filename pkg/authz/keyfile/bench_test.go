package keyfile

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// largeFile makes a file of 100,000 keys, each with its own owner and labels.
func largeFile(b *testing.B) string {
	b.Helper()
	secret, now := newSecret(b), time.Now()
	records := make([]apikey.Record, 100_000)
	for i := range records {
		id := fmt.Sprintf("%08d", i)
		records[i] = apikey.Record{
			ID: id, Hash: secret.Hash(id), Owner: fmt.Sprintf("customer-%d", i), Plan: "free",
			Labels: map[string]string{"team": fmt.Sprintf("team-%d", i)}, Scopes: []string{"read", "write"},
			Created: now, Expires: now.AddDate(1, 0, 0),
		}
	}
	path := filepath.Join(b.TempDir(), "keys.jsonl")
	if err := Add(path, records...); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkLoad loads 100,000 keys, as the service does when it starts.
func BenchmarkLoad(b *testing.B) {
	path := largeFile(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := NewWatcher(path, new(apikey.Source)).Load(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow takes a change of one of 100,000 keys, as a running service does.
func BenchmarkFollow(b *testing.B) {
	path := largeFile(b)
	w := NewWatcher(path, new(apikey.Source))
	if err := w.Load(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		if err := Change(path, "00000007", func(r *apikey.Record) error { r.Owner = fmt.Sprint(i); return nil }); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		r, _ := w.follower.Read()
		if u, isNew := w.take(&r.Files[0], false); u.Err != nil || !isNew {
			b.Fatal(u.Err, isNew)
		}
	}
}

// BenchmarkWrite appends a change to a file of 100,000 keys and syncs it; the file was read before.
func BenchmarkWrite(b *testing.B) {
	path := largeFile(b)
	c, err := parse(path, []byte(content(b, path)))
	if err != nil {
		b.Fatal(err)
	}
	lines, err := encode(c.records[:1])
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := appendTo(path, c.body, lines); err != nil {
			b.Fatal(err)
		}
		c.body += len(lines)
	}
}

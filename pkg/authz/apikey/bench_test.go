package apikey_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// TestMemoryOfAKey: 100,000 keys, each with its own owner and labels, take at most 400 bytes each.
func TestMemoryOfAKey(t *testing.T) {
	const count = 100_000
	source := new(apikey.Source)
	func() {
		set, _ := records(t, newSecret(t, pepper, ""), count)
		source.Replace(set)
	}()
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	source.Replace(nil)
	runtime.GC()
	runtime.ReadMemStats(&without)
	bytes := (int64(with.HeapAlloc) - int64(without.HeapAlloc)) / count
	t.Logf("%d bytes a key", bytes)
	if bytes > 400 || bytes < 50 {
		t.Errorf("%d bytes a key, want at most 400", bytes)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, count := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", count), func(b *testing.B) {
			secret := newSecret(b, pepper, "")
			set, given := records(b, secret, count)
			keys := checker(secret, set...)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := keys.Check(given[i%count]); err != nil {
					b.Fatal(err)
				}
				i += 7919
			}
		})
	}
}

func BenchmarkCheckOfAnUnknownKey(b *testing.B) {
	keys := checker(newSecret(b, pepper, ""))
	key, _ := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Check(key); err == nil {
			b.Fatal("it passes")
		}
	}
}

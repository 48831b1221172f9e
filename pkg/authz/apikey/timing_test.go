package apikey

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
	"testing"
	"time"
)

// TestTimingHidesIDs: a wrong secret with a known id takes the same HMACs as an unknown id. So the time of an answer
// does not show which ids exist. The test counts the work, because times depend on the load of the machine. The rest of
// the work compares the hashes with hmac.Equal, which takes the same time for all.
func TestTimingHidesIDs(t *testing.T) {
	secret, err := NewSecret("a server secret of a test", "another one, for rotation")
	if err != nil {
		t.Fatal(err)
	}
	var work []int // the bytes that each HMAC read
	for i, text := range []string{"a server secret of a test", "another one, for rotation"} {
		secret.peppers[i].macs = &hmacs{sync.Pool{New: func() any {
			return &keyed{Hash: &countedMAC{Hash: hmac.New(sha256.New, []byte(text)), work: &work}}
		}}}
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	newKey := func(id string) string {
		key, err := NewKey(id)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	hash, former := secret.Hash(newKey("aaaaaaaa")), secret.Hash(newKey("aaaaaaaa"))
	source := new(Source)
	source.Replace([]Record{
		{ID: "aaaaaaaa", Owner: "plain", Hash: hash},
		{ID: "bbbbbbbb", Owner: "rotated", Hash: hash, Previous: &Previous{Hash: former, ValidUntil: now.Add(time.Hour)}},
		{ID: "cccccccc", Owner: "expired", Hash: hash, Expires: now},
		{ID: "dddddddd", Owner: "disabled", Hash: hash, Disabled: true},
		{ID: "eeeeeeee", Owner: "not yet", Hash: hash, NotBefore: now.Add(time.Hour)},
	})
	keys := New(Config{Secret: secret, Sources: []*Source{source, new(Source)}, Now: func() time.Time { return now }})
	for _, id := range []string{"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd", "eeeeeeee", "unknown0"} {
		work = nil
		key := newKey(id)
		if _, err := keys.Check(key); err == nil {
			t.Fatalf("%s: a wrong key passes", id)
		}
		if len(work) != 2 || work[0] != len(key) || work[1] != len(key) {
			t.Errorf("%s: HMACs of %v bytes, want one of %d for each of two server secrets", id, work, len(key))
		}
	}
}

// countedMAC records how many bytes each sum covers.
type countedMAC struct {
	hash.Hash
	read int
	work *[]int
}

func (m *countedMAC) Reset() { m.Hash.Reset(); m.read = 0 }

func (m *countedMAC) Write(b []byte) (int, error) {
	m.read += len(b)
	return m.Hash.Write(b)
}

func (m *countedMAC) Sum(b []byte) []byte {
	*m.work = append(*m.work, m.read)
	return m.Hash.Sum(b)
}

package loadgen

import (
	"bytes"
	"testing"
)

// TestKeys checks how often keys occur, and that the text of keys is read again.
func TestKeys(t *testing.T) {
	t.Parallel()
	const draws = 100_000
	for text, c := range map[string]struct {
		distinct, most   [2]int // the range of the number of keys, and of the draws of the most frequent one
		firstIsMostDrawn bool
	}{
		"one":          {[2]int{1, 1}, [2]int{draws, draws}, true},
		"uniform:100":  {[2]int{100, 100}, [2]int{1000, 1300}, false},
		"zipf:1000000": {[2]int{10_000, 60_000}, [2]int{8_000, 16_000}, true}, // the first has 12 % of all
	} {
		k, err := ParseKeys(text)
		if err != nil || k.String() != text {
			t.Fatalf("%q: %v, %v", text, k, err)
		}
		counts, draw := map[uint64]int{}, k.draw(1)
		most := uint64(0)
		for range draws {
			key := draw()
			if counts[key]++; counts[key] > counts[most] {
				most = key
			}
			if key >= uint64(k.Number) {
				t.Fatalf("%s: key %d", text, key)
			}
		}
		if n := len(counts); n < c.distinct[0] || n > c.distinct[1] {
			t.Errorf("%s: %d different keys, want %v", text, n, c.distinct)
		}
		if n := counts[most]; n < c.most[0] || n > c.most[1] || c.firstIsMostDrawn && most != 0 {
			t.Errorf("%s: key %d occurs %d times, want %v", text, most, n, c.most)
		}
	}
}

// TestMessages checks that the digits of a key are put into every place, and nothing else changes.
func TestMessages(t *testing.T) {
	t.Parallel()
	m, err := Check(HTTPRequest{Method: "GET", Host: "h", Path: "/{key}/{key}?k={key}",
		Headers: map[string]string{"X-K": "{key}"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.places) != 3*2+1 { // the path is also the header :path
		t.Errorf("%d places", len(m.places))
	}
	l := &lane{message: bytes.Clone(m.bytes), places: m.places, draw: func() uint64 { return 12_345_678 }}
	got := l.withKey()
	for i, at := range m.places {
		if text := string(got[at : at+keyDigits]); text != "12345678" {
			t.Errorf("place %d has %q", i, text)
		}
		copy(got[at:], "00000000")
	}
	if string(got) != string(m.bytes) {
		t.Error("more than the keys has changed")
	}
}

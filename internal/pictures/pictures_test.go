package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const directory = "../../docs/pictures"

// TestPictures keeps the files those that the code draws; `make pictures` writes them.
func TestPictures(t *testing.T) {
	for name, want := range pictures() {
		got, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || string(got) != want {
			t.Errorf("docs/pictures/%s is not what is drawn now (%v): run make pictures, and look at it", name, err)
		}
	}
	files, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if pictures()[f.Name()] == "" {
			t.Errorf("docs/pictures/%s is drawn by nobody", f.Name())
		}
	}
}

// TestTheTextIsThePicture: docs/algorithms.md has in words what the picture shows. pkg/ratelimit/bucket's TestOneBurst holds the
// seconds of that table.
func TestTheTextIsThePicture(t *testing.T) {
	for _, c := range []struct {
		algorithm         bucket.Algorithm
		passes            []int64 // s
		fifteen, sixty    int
		leaves            []int64 // s
		leftWithinAMinute int
	}{
		{bucket.FixedWindow, []int64{50, 51, 52, 53, 54, 60, 61, 62, 63, 64, 120, 121, 122, 123, 124}, 10, 10, nil, 0},
		{bucket.SlidingWindowCounter, []int64{50, 51, 52, 53, 54, 72, 84, 96, 108, 120}, 5, 9, nil, 0},
		{bucket.SlidingWindowLog, []int64{50, 51, 52, 53, 54, 110, 111, 112, 113, 114}, 5, 5, nil, 0},
		{bucket.TokenBucket, []int64{50, 51, 52, 53, 54, 62, 74, 86, 98, 110, 122}, 6, 9, nil, 0},
		{bucket.LeakyBucket, []int64{50, 51, 52, 53, 54, 62, 74, 86, 98, 110, 122}, 6, 9,
			[]int64{50, 62, 74, 86, 98, 110, 122, 134, 146, 158, 170}, 5},
	} {
		h := simulate(c.algorithm)
		if !slices.Equal(h.passed, micros(c.passes)) {
			t.Errorf("%s lets through at %v µs, want %v s", c.algorithm, h.passed, c.passes)
		}
		if a, b := most(h.passed, 15*second), most(h.passed, 60*second); a != c.fifteen || b != c.sixty {
			t.Errorf("%s lets at most %d through in 15 s and %d in 60 s, want %d and %d", c.algorithm, a, b, c.fifteen, c.sixty)
		}
		if !slices.Equal(h.leaves, micros(c.leaves)) || most(h.leaves, 60*second) != c.leftWithinAMinute {
			t.Errorf("%s lets go at %v µs, %d in 60 s, want %v s, %d", c.algorithm, h.leaves, most(h.leaves, 60*second),
				c.leaves, c.leftWithinAMinute)
		}
	}
}

func micros(seconds []int64) []int64 {
	var times []int64
	for _, s := range seconds {
		times = append(times, s*second)
	}
	return times
}

// TestReadable: a picture is XML, says what it shows to who can not see it, and needs nothing from elsewhere.
func TestReadable(t *testing.T) {
	for name, content := range pictures() {
		d := xml.NewDecoder(strings.NewReader(content))
		said := map[string]string{}
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			start, ok := token.(xml.StartElement)
			if ok && (start.Name.Local == "title" || start.Name.Local == "desc") {
				var text string
				if err := d.DecodeElement(&text, &start); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				said[start.Name.Local] = text
			}
		}
		if said["title"] == "" || len(said["desc"]) < 100 {
			t.Errorf("%s: its title is %q and its description %q", name, said["title"], said["desc"])
		}
		if n := strings.Count(content, "http"); n != 1 || strings.Contains(content, "url(") {
			t.Errorf("%s names addresses %d times, want the namespace of SVG alone", name, n)
		}
	}
}

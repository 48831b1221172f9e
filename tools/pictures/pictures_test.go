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

// TestPictures checks that docs/pictures has exactly the files that the code draws; `make pictures` writes them.
// Exception: a browser draws those that end in .png (test/page).
func TestPictures(t *testing.T) {
	all, err := pictures()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || string(got) != want {
			t.Errorf("docs/pictures/%s is out of date (%v): run make pictures, and look at the result", name, err)
		}
	}
	files, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if all[f.Name()] == "" && filepath.Ext(f.Name()) != ".png" {
			t.Errorf("docs/pictures/%s: no code draws this file", f.Name())
		}
	}
}

// TestTheTextIsThePicture checks that the picture shows the numbers in the table of docs/algorithms.md. TestOneBurst of
// pkg/ratelimit/bucket checks the seconds of that table.
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
			t.Errorf("%s allows requests at %v µs, want %v s", c.algorithm, h.passed, c.passes)
		}
		if a, b := most(h.passed, 15*second), most(h.passed, 60*second); a != c.fifteen || b != c.sixty {
			t.Errorf("%s allows at most %d in 15 s and %d in 60 s, want %d and %d", c.algorithm, a, b, c.fifteen, c.sixty)
		}
		if !slices.Equal(h.leaves, micros(c.leaves)) || most(h.leaves, 60*second) != c.leftWithinAMinute {
			t.Errorf("%s: requests leave the queue at %v µs, %d in 60 s, want %v s, %d", c.algorithm, h.leaves,
				most(h.leaves, 60*second), c.leaves, c.leftWithinAMinute)
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

// TestReadable checks that a picture is valid XML, has a title and a description for screen readers, and loads nothing.
func TestReadable(t *testing.T) {
	all, err := pictures()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range all {
		d := xml.NewDecoder(strings.NewReader(content))
		texts := map[string]string{}
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
				texts[start.Name.Local] = text
			}
		}
		if texts["title"] == "" || len(texts["desc"]) < 100 {
			t.Errorf("%s: its title is %q and its description %q", name, texts["title"], texts["desc"])
		}
		if n := strings.Count(content, "http"); n != 1 || strings.Contains(content, "url(") {
			t.Errorf("%s has %d addresses, want only the namespace of SVG", name, n)
		}
	}
}

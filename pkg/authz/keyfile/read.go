package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// maxSize bounds a file in bytes: 100,000 keys have some 25 MB, and up to half of the lines can be outdated.
const maxSize = 128 << 20

// maxLines bounds the memory for the lines of a file. A key file of maxSize has fewer lines.
const maxLines = 1_000_000

// endMark is the last line.
const endMark = `{"end":true}`

type contents struct {
	// records has the newest record of each id, in the order in which the ids first appear.
	records []apikey.Record
	// index and weak are the position of an id, and the first position of a weak key, in records.
	index map[string]int
	weak  map[apikey.Hash]int
	// lines counts all records, including outdated ones; version is the largest of them.
	lines   int
	version int64
	body    int // bytes before the end mark
}

func newContents(size int) *contents {
	return &contents{
		records: make([]apikey.Record, 0, size), index: make(map[string]int, size), weak: map[apikey.Hash]int{},
	}
}

// put replaces the record with the same id, or appends the record.
func (c *contents) put(r apikey.Record) error {
	i, known := c.index[r.ID]
	if known {
		c.records[i] = r
	} else {
		i = len(c.records)
		c.index[r.ID] = i
		c.records = append(c.records, r)
	}
	if !r.Weak {
		return nil
	}
	if first, taken := c.weak[r.Hash]; taken && first != i && c.records[first].Hash == r.Hash {
		return fmt.Errorf("the keys %q and %q are the same weak key", c.records[first].ID, r.ID)
	}
	c.weak[r.Hash] = i
	return nil
}

// Load returns the keys of a file, in the order in which their ids first appear. The error lists all mistakes.
func Load(path string) ([]apikey.Record, error) {
	content, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(path, content)
	if err != nil {
		return nil, err
	}
	return c.records, nil
}

// read returns the bytes of a file.
func read(path string) ([]byte, error) {
	content, _, err := poll.Read(path, maxSize)
	return content, unread(path, content, err)
}

// unread returns why the result of reading a file cannot be used, nil if it can.
func unread(path string, content []byte, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w\n      = `extauthz keys create` makes the file", err)
	case errors.Is(err, poll.ErrNotRegular):
		return fmt.Errorf("%s: %w", path, poll.ErrNotRegular)
	case len(content) > maxSize:
		return tooLarge(path)
	}
	return err
}

func tooLarge(path string) error {
	return fmt.Errorf("%s: larger than %d MB\n      = is this a key file? If so, keep the keys in Redis",
		path, maxSize>>20)
}

// parse reads the bytes of a file. The error lists all mistakes.
func parse(path string, content []byte) (*contents, error) {
	end := findEnd(content)
	if end < 0 {
		return nil, cut(path, content)
	}
	return parseLines(path, content[:end])
}

// findEnd returns where the end mark begins, -1 if a text does not end with one.
func findEnd(content []byte) int {
	text := bytes.TrimSpace(content)
	if !bytes.HasSuffix(text, []byte(endMark)) {
		return -1
	}
	body := bytes.LastIndex(content, []byte(endMark))
	if body > 0 && content[body-1] != '\n' {
		return -1
	}
	return body
}

type line struct {
	number int
	text   []byte
	record apikey.Record
	err    error
}

// parseLines reads lines without the end mark.
func parseLines(path string, text []byte) (*contents, error) {
	count := bytes.Count(text, []byte("\n"))
	if count > maxLines {
		return nil, fmt.Errorf("%s:%d: a file has at most %d lines", path, maxLines+1, maxLines)
	}
	lines := make([]line, 0, count)
	number := 0
	for text := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(text)) > 0 {
			lines = append(lines, line{number: number, text: text})
		}
	}
	var all sync.WaitGroup
	for part := range slices.Chunk(lines, len(lines)/runtime.GOMAXPROCS(0)+1) {
		all.Go(func() {
			var d apikey.Decoder
			for i := range part {
				part[i].record, part[i].err = d.Decode("", part[i].text)
			}
		})
	}
	all.Wait()
	c := newContents(len(lines))
	c.lines, c.body = len(lines), len(text)
	var mistakes []string
	for i := range lines {
		l := &lines[i]
		if err := c.take(l); err != nil {
			mistakes = append(mistakes, fmt.Sprintf("%s:%d: %s", path, l.number, apikey.Mask(err.Error())))
		}
	}
	if more := len(mistakes) - maxShown; more > 0 {
		mistakes = append(mistakes[:maxShown], fmt.Sprintf("… and %d more", more))
	}
	if mistakes != nil {
		return nil, errors.New(strings.Join(mistakes, "\n"))
	}
	return c, nil
}

// maxShown is how many mistakes an error lists: a file of another kind has one in each line.
const maxShown = 20

func (c *contents) take(l *line) error {
	switch id := l.record.ID; {
	case bytes.HasPrefix(l.text, []byte(endMark)):
		return errors.New("only the last line can be " + endMark)
	case l.err != nil && id != "":
		return fmt.Errorf("key %.64q: %w", id, l.err)
	case l.err != nil:
		return l.err
	}
	c.version = max(c.version, l.record.Version)
	return c.put(l.record)
}

// cut returns the error for a file without an end mark, with the way to repair it.
func cut(path string, content []byte) error {
	text := bytes.TrimSpace(content)
	if len(text) == 0 {
		return fmt.Errorf("%s: the file is empty\n      = `extauthz keys create` makes a key in it", path)
	}
	last := bytes.Count(text, []byte("\n")) + 1
	repair := fmt.Sprintf("add %s as line %d", endMark, last+1)
	if _, err := apikey.Decode("", text[bytes.LastIndexByte(text, '\n')+1:]); err != nil {
		repair = fmt.Sprintf("put %s in the place of line %d", endMark, last)
	}
	return fmt.Errorf("%s:%d: the file ends here, and its last line is not %s: "+
		"it was cut off, or it is still being written\n"+
		"      = restore the whole file: without its end, a revoked key can be valid\n"+
		"      = if a run of `extauthz keys` was interrupted: %s, and run it again",
		path, last, endMark, repair)
}

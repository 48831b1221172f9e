package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// maxSize bounds a file: 100,000 keys have some 25 MB, and up to half of the lines can be outdated.
const maxSize = 128 << 20

// maxLines bounds the memory that the lines of a file take: a file of this size has fewer, unless it is none of keys.
const maxLines = 1_000_000

// endMark is the last line.
const endMark = `{"end":true}`

// contents is what a key file holds.
type contents struct {
	// records has the newest record of each id, in the order in which the ids first appear.
	records []apikey.Record
	index   map[string]int // of an id in records
	lines   int            // of records, the outdated ones among them
	version int64          // the largest version of a line
	body    int            // how many bytes stand before the end mark
}

// Load returns the keys of the file at a path, in the order in which their ids first appear. The error has all mistakes
// of the file with their lines.
func Load(path string) ([]apikey.Record, error) {
	content, _, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(path, content)
	return c.records, err
}

// read returns the bytes of a file.
func read(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // before Open, because opening a named pipe waits for a writer
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%w\n      = `extauthz keys create` makes the file", err)
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if info.Size() > maxSize {
		return nil, nil, tooLarge(path)
	}
	content := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := content.ReadFrom(io.LimitReader(f, maxSize)); err != nil {
		return nil, nil, err
	}
	return content.Bytes(), info, nil
}

func tooLarge(path string) error {
	return fmt.Errorf("%s: larger than %d MB\n      = is this a key file? If so, keep the keys in Redis",
		path, maxSize>>20)
}

// parse reads the bytes of a file. With an error, which has all mistakes, there are no records.
func parse(path string, content []byte) (contents, error) {
	p := parser{path: path, weak: map[apikey.Hash]int{}}
	p.body = findEnd(content)
	switch {
	case p.body < 0 && isYAML(content):
		return contents{}, p.yaml()
	case p.body < 0:
		return contents{}, p.cut(content)
	}
	p.add(content[:p.body])
	if len(p.mistakes) > 0 {
		return contents{}, p.err()
	}
	return p.contents, nil
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

type parser struct {
	contents
	path     string
	weak     map[apikey.Hash]int // where each weak key first appears in records
	mistakes []string
}

// line is a line of the file.
type line struct {
	number int
	text   []byte
	record apikey.Record
	err    error
}

// add reads lines without the end mark.
func (p *parser) add(text []byte) {
	count := bytes.Count(text, []byte("\n"))
	if count > maxLines {
		p.fail(maxLines+1, fmt.Sprintf("a file has at most %d lines", maxLines))
		return
	}
	lines := make([]line, 0, count)
	number := 0
	for text := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(text)) > 0 {
			lines = append(lines, line{number: number, text: text})
		}
	}
	p.lines = len(lines)
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
	p.records, p.index = make([]apikey.Record, 0, len(lines)), make(map[string]int, len(lines))
	for i := range lines {
		p.take(&lines[i])
	}
}

// take puts a record in the place of an older one with its id, or behind the others.
func (p *parser) take(l *line) {
	r := l.record
	switch {
	case bytes.HasPrefix(l.text, []byte(endMark)):
		p.fail(l.number, "only the last line can be "+endMark)
		return
	case l.err != nil && r.ID != "":
		p.fail(l.number, fmt.Sprintf("key %.64q: %v", r.ID, l.err))
		return
	case l.err != nil:
		p.fail(l.number, l.err.Error())
		return
	}
	p.version = max(p.version, r.Version)
	i, known := p.index[r.ID]
	if known {
		p.records[i] = r
	} else {
		i = len(p.records)
		p.index[r.ID] = i
		p.records = append(p.records, r)
	}
	if !r.Weak {
		return
	}
	if first, taken := p.weak[r.Hash]; taken && first != i && p.records[first].Hash == r.Hash {
		p.fail(l.number, fmt.Sprintf("the keys %q and %q are the same weak key", p.records[first].ID, r.ID))
		return
	}
	p.weak[r.Hash] = i
}

func (p *parser) fail(line int, message string) {
	p.mistakes = append(p.mistakes, fmt.Sprintf("%s:%d: %s", p.path, line, apikey.Mask(message)))
}

// maxShown is how many mistakes an error has: a file of another kind has one in each line.
const maxShown = 20

func (p *parser) err() error {
	shown := slices.Clone(p.mistakes[:min(len(p.mistakes), maxShown)])
	if more := len(p.mistakes) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("… and %d more", more))
	}
	return errors.New(strings.Join(shown, "\n"))
}

// cut says how to repair a file without an end mark.
func (p *parser) cut(content []byte) error {
	text := bytes.TrimSpace(content)
	if len(text) == 0 {
		return fmt.Errorf("%s: the file is empty\n      = `extauthz keys create` makes a key in it", p.path)
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
		p.path, last, endMark, repair)
}

// isYAML reports whether a text is a key file of the form that came before this one.
func isYAML(content []byte) bool {
	return bytes.HasPrefix(content, []byte("keys:")) || bytes.Contains(content, []byte("\nkeys:"))
}

// yaml says how to convert a key file in YAML.
func (p *parser) yaml() error {
	next := strings.TrimSuffix(strings.TrimSuffix(p.path, ".yaml"), ".yml") + ".jsonl"
	return fmt.Errorf("%s: this is a key file in YAML; key files are JSON Lines now. Convert it with\n"+
		"  extauthz keys import %s --file %s\nand set API_KEYS_FILE=%s", p.path, shell(p.path), shell(next), shell(next))
}

// shell quotes a path for a shell, where it needs quotes.
func shell(path string) string {
	path = filepath.Clean(path)
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// block returns the first fenced block of a language in a page of the documentation that contains a text, so that a
// test runs what the page shows.
func block(t *testing.T, page, language, has string) string {
	t.Helper()
	for _, content := range blocks(t, page, language) {
		if strings.Contains(content, has) {
			return content
		}
	}
	t.Fatalf("%s has no block of %s with %q", page, language, has)
	return ""
}

// blocks returns all fenced blocks of a language, in order.
func blocks(t *testing.T, page, language string) (list []string) {
	t.Helper()
	for rest := testenv.RepoFile(t, page); ; {
		_, after, ok := strings.Cut(rest, "\n```"+language+"\n")
		if !ok {
			return list
		}
		content, after, closed := strings.Cut(after, "\n```")
		if !closed {
			t.Fatalf("%s has a block of %s without an end", page, language)
		}
		list, rest = append(list, content+"\n"), after
	}
}

// example is a request of a page, or several equal ones, and the answer that the page shows.
type example struct {
	command string
	call    call
	status  string
	header  http.Header
	body    string // "": not shown
	codes   string // of several
}

// examples returns the requests of a block: lines such as `$ curl -si localhost:10000/path -H "name: value"`. The
// status line and the headers of the answer follow each request. All headers about limits are among them; the body is
// optional. A block may also have a loop over such requests, followed by their statuses. Words such as $KEY are
// replaced.
func examples(t *testing.T, console string, words map[string]string) (list []example) {
	t.Helper()
	for line := range strings.Lines(console) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, example{command: command, call: curl(t, command, words), header: http.Header{}})
			continue
		}
		last := &list[len(list)-1]
		switch name, value, isHeader := strings.Cut(line, ": "); {
		case strings.HasPrefix(last.command, "for "):
			last.codes += line
		case strings.HasPrefix(line, "HTTP/1.1 "):
			last.status = strings.TrimPrefix(line, "HTTP/1.1 ")
		case strings.HasPrefix(line, "{"):
			last.body = line
		case isHeader:
			last.header.Add(name, value)
		case line != "" && line != "...":
			t.Fatalf("after %q: cannot read %q", last.command, line)
		}
	}
	return list
}

var curlLine = regexp.MustCompile(`curl (?:-si|-so /dev/null -w "%\{http_code\} ") localhost:10000(/\S*)` +
	`(?: -H "([^:"]+): ([^"]+)")?(?:; done)?$`)

func curl(t *testing.T, command string, words map[string]string) call {
	t.Helper()
	m := curlLine.FindStringSubmatch(command)
	if m == nil {
		t.Fatalf("cannot read %q, want %s", command, curlLine)
	}
	c := get(m[1])
	if m[2] != "" {
		c.header = append(c.header, [2]string{m[2], os.Expand(m[3], func(word string) string { return words[word] })})
	}
	return c
}

// checkExamples makes the requests of a block and compares the answers with those of the page. Numbers may differ by
// the seconds that have passed.
func (p *proxy) checkExamples(t *testing.T, console string, words map[string]string) {
	t.Helper()
	begin := time.Now()
	for _, e := range examples(t, console, words) {
		if e.codes != "" {
			var codes []string
			for range strings.Fields(e.codes) {
				codes = append(codes, strconv.Itoa(p.do(t, e.call).status))
			}
			if got := strings.Join(codes, " "); got != e.codes {
				t.Errorf("%s: got %s, the page shows %s", e.command, got, e.codes)
			}
			continue
		}
		a := p.do(t, e.call)
		if got := fmt.Sprint(a.status, " ", http.StatusText(a.status)); got != e.status {
			t.Errorf("%s: got %s, the page shows %s", e.command, got, e.status)
		}
		seconds := 1 + int(time.Since(begin)/time.Second)
		for name, values := range a.header {
			limiting := strings.Contains(name, "Ratelimit") || name == "Retry-After"
			if limiting && !strings.HasPrefix(name, sawPrefix) && e.header[name] == nil {
				t.Errorf("%s: got %s: %q, which the page does not show", e.command, name, values)
			}
		}
		for name, want := range e.header {
			if !slices.EqualFunc(a.header[name], want, near(seconds)) {
				t.Errorf("%s: got %s: %q, the page shows %q", e.command, name, a.header[name], want)
			}
		}
		if e.body != "" && !near(seconds)(a.body, e.body) {
			t.Errorf("%s: got body %s, the page shows %s", e.command, a.body, e.body)
		}
	}
}

// near returns a function that compares texts. Numbers in them may differ by at most most.
func near(most int) func(got, want string) bool {
	number := regexp.MustCompile(`\d+`)
	return func(got, want string) bool {
		gots, wants := number.FindAllString(got, -1), number.FindAllString(want, -1)
		return number.ReplaceAllString(got, "0") == number.ReplaceAllString(want, "0") &&
			slices.EqualFunc(gots, wants, func(a, b string) bool {
				x, errX := strconv.Atoi(a)
				y, errY := strconv.Atoi(b)
				return errX == nil && errY == nil && x-y <= most && y-x <= most
			})
	}
}

package istio

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestPage makes the requests of docs/istio.md. Each response must contain the lines that the page shows.
func TestPage(t *testing.T) {
	t.Parallel()
	m := load(t, "service", "gateway", "example")
	behind := startBehindGateway(t, m)
	behind.application = echo(t)
	_, client := behind.gateway(t, m)
	words := map[string]string{"KEY": strings.TrimPrefix(behind.keys["alice"], "x-api-key: ")}

	var got, command string
	requests := 0
	for line := range strings.Lines(consoleOf(t, filepath.Join("docs", "istio.md"), "$ GATEWAY=localhost:8080\n")) {
		line = strings.TrimSpace(line)
		request, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			command, got = request, ""
			for range max(1, len(loop.FindString(request))/2) {
				got += client.answerTo(t, request, words)
			}
			requests++
		case line != "..." && !strings.Contains(got, line):
			t.Errorf("%s: got\n%s\nthe page shows %s", command, got, line)
		}
	}
	if requests < 3 {
		t.Errorf("the page has %d requests, want at least 3", requests)
	}
}

// loop matches the numbers of a loop over requests, one for each request.
var loop = regexp.MustCompile(`( \d)+;`)

var (
	curl = regexp.MustCompile(`curl (-si|-so /dev/null -w "%\{http_code\} ") \$GATEWAY(/\S*)( -X (\S+))?` +
		`((?: -H "[^"]+")*)(; done)?$`)
	curlHeader = regexp.MustCompile(`"([^"]+)"`)
)

// answerTo makes the request of a line with curl, and returns the output of curl.
func (c client) answerTo(t *testing.T, line string, words map[string]string) string {
	t.Helper()
	m := curl.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("cannot read %q, want %s", line, curl)
	}
	method := http.MethodGet
	if m[4] != "" {
		method = m[4]
	}
	var headers []string
	for _, h := range curlHeader.FindAllStringSubmatch(m[5], -1) {
		if host, ok := strings.CutPrefix(h[1], "host: "); ok {
			c.host = host
			continue
		}
		headers = append(headers, os.Expand(h[1], func(word string) string { return words[word] }))
	}
	a := c.do(t, method, m[2], headers...)
	if m[1] != "-si" {
		return strconv.Itoa(a.status) + " "
	}
	text := fmt.Sprintf("HTTP/1.1 %d %s\n", a.status, http.StatusText(a.status))
	for name, values := range a.header {
		for _, value := range values {
			text += strings.ToLower(name) + ": " + value + "\n"
		}
	}
	return text + a.body
}

// consoleOf returns the text after a line of a page, up to the end of the block.
func consoleOf(t *testing.T, path, after string) string {
	t.Helper()
	_, block, ok := strings.Cut(testenv.RepoFile(t, path), after)
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatalf("%s has no block with %q", path, after)
	}
	return block
}

// echo starts the application of istio/example.
func echo(t *testing.T) (addr string) {
	t.Helper()
	addr = testenv.Loopback(testenv.FreePort(t))
	cmd := exec.Command(binary, "echo")
	cmd.Env = []string{"ECHO_ADDRESS=" + addr}
	testenv.Start(t, cmd, func() error {
		resp, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return addr
}

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// modeline is the first line of a rule file for editors, as docs/rules.md shows it.
const modeline = "# yaml-language-server: $schema=../extauthz.schema.json\n"

// TestSchemaInAnEditor opens rule files in the language server that editors use, with the output of `extauthz schema`.
func TestSchemaInAnEditor(t *testing.T) {
	t.Parallel()
	if !strings.Contains(testenv.RepoFile(t, "docs/rules.md"), modeline) {
		t.Errorf("docs/rules.md does not show %s", modeline)
	}
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.Mkdir(rules, 0o700); err != nil {
		t.Fatal(err)
	}
	schema, err := exec.Command(binary, "schema").Output()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		path := filepath.Join(rules, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("../extauthz.schema.json", string(schema))
	editor := newEditor(t)
	for _, example := range []string{
		"internal/service/sample/sample.yaml", "deploy/compose/rules/shop.yaml",
		"deploy/helm/extauthz/files/api-key-rules.yaml",
		"deploy/kustomize/base/rules/example.yaml", "istio/service/rules/application.yaml", "test/e2e/testdata/policy.yaml",
	} {
		path := write(filepath.Base(example), modeline+testenv.RepoFile(t, example))
		if found := editor.open(t, path); len(found) > 0 {
			t.Errorf("%s: the editor finds mistakes:\n%s", example, strings.Join(found, "\n"))
		}
	}
	mistaken := write("mistaken.yaml", modeline+`domain: shop
authz: {credentials: [{api_key: {heder: x-api-key}}]}
descriptors:
  - key: a
    rate_limit: {unit: mintue, requests_per_unit: 5}
  - key: b
    descriptors: [{key: c, ratelimit: }]
`)
	want := []string{
		`3: Property heder is not allowed.`,
		`6: Value is not accepted. Valid values: "second", "minute", "hour", "day", "week", "month", "year".`,
		`8: Property ratelimit is not allowed.`,
	}
	if diff := cmp.Diff(want, editor.open(t, mistaken)); diff != "" {
		t.Errorf("mistakes in an editor, want (-) and got (+):\n%s", diff)
	}
}

// editor speaks the Language Server Protocol with yaml-language-server.
type editor struct {
	in  io.Writer
	out *textproto.Reader
}

// message is a message of JSON-RPC.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
}

func newEditor(t *testing.T) *editor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	server := exec.CommandContext(ctx, testenv.Binary(t, "yaml-language-server", ""), "--stdio")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // returns the error of the kill
	})
	e := &editor{in: in, out: textproto.NewReader(bufio.NewReader(out))}
	e.send(t, message{ID: json.RawMessage("1"), Method: "initialize", Params: map[string]any{
		"processId": os.Getpid(), "rootUri": nil, "capabilities": map[string]any{},
	}})
	for string(e.receive(t).ID) != "1" {
	}
	e.send(t, message{Method: "initialized", Params: map[string]any{}})
	return e
}

// open opens a file and returns the mistakes that the editor underlines, as "line: message".
func (e *editor) open(t *testing.T, path string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	uri := "file://" + path
	e.send(t, message{Method: "textDocument/didOpen", Params: map[string]any{"textDocument": map[string]any{
		"uri": uri, "languageId": "yaml", "version": 1, "text": string(text),
	}}})
	for {
		m := e.receive(t)
		if m.Method != "textDocument/publishDiagnostics" {
			continue
		}
		var published struct {
			URI         string
			Diagnostics []struct {
				Message string
				Range   struct{ Start struct{ Line int } }
			}
		}
		if err := json.Unmarshal(m.Params, &published); err != nil {
			t.Fatal(err)
		}
		if published.URI != uri {
			continue
		}
		for _, d := range published.Diagnostics {
			found = append(found, fmt.Sprintf("%d: %s", d.Range.Start.Line+1, d.Message))
		}
		return found
	}
}

func (e *editor) send(t *testing.T, m message) {
	t.Helper()
	m.Version = "2.0"
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
}

// received is a message from the server.
type received struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// receive returns the next message. If the server requests settings, receive answers with empty ones.
func (e *editor) receive(t *testing.T) (m received) {
	t.Helper()
	header, err := e.out.ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	length, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(e.out.R, body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if m.Method == "workspace/configuration" {
		var params struct{ Items []any }
		if err := json.Unmarshal(m.Params, &params); err != nil {
			t.Fatal(err)
		}
		settings := make([]struct{}, len(params.Items))
		e.send(t, message{ID: m.ID, Result: settings})
	}
	return m
}

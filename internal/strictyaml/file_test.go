package strictyaml_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, size := range map[string]int{"fine": 10, "full": 1 << 20, "large": 1<<20 + 1} {
		if err := os.WriteFile(path(name), []byte(strings.Repeat("#", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path("directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for name, want := range map[string]string{
		"fine":      "",
		"full":      "",
		"large":     "",
		"directory": "warning: left out: it is no shop\n",
		"socket":    "warning: left out: not a regular file\n",
		"absent":    "error: read shop file: no such file or directory\n",
	} {
		kind := shopKind()
		kind.Directory = "it is no shop"
		file, problem := strictyaml.ReadFile(path(name), nil, kind)
		switch {
		case want == "" && (problem != nil || len(file.Content) == 0 || file.Name != path(name)):
			t.Errorf("%s: got %d bytes of %q and problem %v", name, len(file.Content), file.Name, problem)
		case want != "" && (problem == nil || problem.String() != path(name)+": "+want):
			t.Errorf("%s: got %v, want %s", name, problem, want)
		}
	}
}

// Read returns a document whose values can be walked, and mistakes can be added at them.
func TestRead(t *testing.T) {
	file := strictyaml.File{Name: "f", Content: []byte("a: &x {b: 1, c: [2, {d: 3}]}\ne: {<<: *x, f: yes}\n# end\n\n")}
	doc := strictyaml.Read(file, shopKind())
	var texts []string
	var walk func(v *strictyaml.Value)
	walk = func(v *strictyaml.Value) {
		if v.Text() != "" {
			texts = append(texts, v.Text())
		}
		for key, field := range v.Fields() {
			texts = append(texts, key)
			walk(field)
			if key == "d" {
				doc.Fail(field, "MISTAKE", "hint")
			}
		}
		for _, item := range v.Items() {
			walk(item)
		}
	}
	walk(doc.Root())
	walk(nil)
	if got, want := strings.Join(texts, " "), "a b 1 c 2 d 3 e b 1 c 2 d 3 f yes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	doc.Fail(nil, "of all")
	doc.FailAtEnd("at the end")
	want := `f: error: of all

f:1:25: error: MISTAKE
    1 | a: &x {b: 1, c: [2, {d: 3}]}
      |                         ^
      = hint

f:3:1: error: at the end
    3 | # end
      | ^

3 errors, 0 warnings`
	if got := doc.Problems().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

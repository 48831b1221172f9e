package keyfile

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/testenv/cases"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files in testdata with the current messages")

// TestParseYAML reads each case of testdata: NAME.yaml is a YAML file of API keys, NAME.want its problems.
func TestParseYAML(t *testing.T) {
	cases.Run(t, "testdata/*.txtar", *updateGolden, func(t *testing.T, _ string, f txtar.File) string {
		keys, problems := ParseYAML(strictyaml.File{Name: f.Name, Content: f.Data})
		var b strings.Builder
		if len(problems) > 0 {
			b.WriteString(problems.Error() + "\n")
		}
		if strings.Contains(b.String(), "canary") {
			t.Errorf("a key is shown:\n%s", &b)
		}
		for _, r := range keys {
			if err := r.Err(); err != nil {
				t.Errorf("a record with mistakes passes: %v", err)
			}
			data, err := r.Encode()
			fmt.Fprintf(&b, "%s %v\n", data, err)
		}
		return b.String()
	})
}

// FuzzParseYAML: no content makes ParseYAML panic, and each key that it returns is valid.
func FuzzParseYAML(f *testing.F) {
	for _, path := range cases.Archives(f, "testdata/*.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, _ := ParseYAML(strictyaml.File{Name: "f", Content: content})
		for _, r := range keys {
			if err := r.Err(); err != nil {
				t.Errorf("a record with mistakes passes: %v", err)
			}
		}
	})
}

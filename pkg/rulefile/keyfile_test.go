package rulefile

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestKeyFiles reads each case of testdata/keys: NAME.yaml is a file of API keys, NAME.want what is said about it.
func TestKeyFiles(t *testing.T) {
	for _, path := range archives(t, "keys") {
		goldenCases(t, path, func(f File) string {
			keys, problems := ParseKeys(f)
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
}

// FuzzKeyFile: no content makes ParseKeys panic, and each key that it returns can be used.
func FuzzKeyFile(f *testing.F) {
	for _, path := range archives(f, "keys") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, problems := ParseKeys(File{Name: "f", Content: content})
		for _, p := range problems {
			checkProblem(t, p)
		}
		for _, r := range keys {
			if err := r.Err(); err != nil {
				t.Errorf("a record with mistakes passes: %v", err)
			}
		}
	})
}

package ratelimit_test

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestMiss explains the descriptors of each archive of testdata/misses. An explanation that differs if values are shown
// has a second line.
func TestMiss(t *testing.T) {
	for _, path := range cases.Archives(t, "testdata/misses/*.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var files []file.File
		var asked []byte
		for _, f := range archive.Files {
			switch {
			case strings.HasSuffix(f.Name, ".yaml"):
				files = append(files, file.File{Name: f.Name, Content: f.Data})
			case f.Name == "descriptors":
				asked = f.Data
			}
		}
		set, problems := file.Parse(files, file.Config{CheckOptions: ratelimit.CheckOptions{MergeDomains: true}})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
		var got strings.Builder
		for line := range strings.Lines(string(asked)) {
			words := strings.Fields(line)
			var entries []descriptors.Entry
			for _, word := range words[1:] {
				key, value, _ := strings.Cut(word, "=")
				entries = append(entries, descriptors.Entry{Key: key, Value: value})
			}
			miss := rules.Miss(words[0], entries, ratelimit.HideValues)
			fmt.Fprintf(&got, "%s\n    %s\n", strings.TrimSpace(line), cmp.Or(miss, "(a rule matches)"))
			if shown := rules.Miss(words[0], entries, ratelimit.ShowValues); shown != miss {
				fmt.Fprintf(&got, "    shown: %s\n", shown)
			}
		}
		if *update {
			cases.Set(archive, "descriptors", "want", got.String())
			cases.Write(t, path, archive)
			continue
		}
		cases.Check(t, archive, "want", asked, got.String())
	}
}

package strictyaml_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with what the code says now")

// TestProblems reads each case of testdata/*.txtar: NAME.yaml is a shop file, NAME.want what is reported.
func TestProblems(t *testing.T) {
	for _, path := range archives(t) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range slices.Clone(archive.Files) {
			name, isCase := strings.CutSuffix(f.Name, ".yaml")
			if !isCase {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+name, func(t *testing.T) {
				doc := strictyaml.Decode(strictyaml.File{Name: f.Name, Content: f.Data}, shopKind(), new(shop))
				got := doc.Problems().Error() + "\n"
				i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name+".want" })
				switch {
				case *update && i < 0:
					at := slices.IndexFunc(archive.Files,
						func(other txtar.File) bool { return other.Name == f.Name }) + 1
					archive.Files = slices.Insert(archive.Files, at,
						txtar.File{Name: name + ".want", Data: []byte(got)})
				case *update:
					archive.Files[i].Data = []byte(got)
				case i < 0:
					t.Errorf("no %s.want: run the test with -update and read what it writes", name)
				default:
					if diff := cmp.Diff(string(archive.Files[i].Data), got); diff != "" {
						t.Errorf("%s\nwant (-) and got (+):\n%s", f.Data, diff)
					}
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func archives(t testing.TB) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives in testdata: %v", err)
	}
	return paths
}

package strictyaml_test

import (
	"flag"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestProblems reads each case of testdata/*.txtar: NAME.yaml is a shop file, NAME.want its problems.
func TestProblems(t *testing.T) {
	cases.Run(t, "testdata/*.txtar", *update, func(_ *testing.T, _ string, f txtar.File) string {
		doc := strictyaml.Decode(strictyaml.File{Name: f.Name, Content: f.Data}, shopKind(), new(shop))
		return doc.Problems().Error() + "\n"
	})
}

func archives(t testing.TB) []string { return cases.Archives(t, "testdata/*.txtar") }

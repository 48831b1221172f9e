package migrate

import (
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

// fuzzed adds the cases of a directory as seeds.
func fuzzed(f *testing.F, pattern string) {
	for _, path := range cases.Archives(f, pattern) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range archive.Files {
			f.Add(one.Data)
		}
	}
}

// sound fails the test if a rule file has mistakes of its own, or none of its domains can be read.
func sound(t *testing.T, c *Converted) {
	t.Helper()
	for _, p := range c.Problems {
		cases.CheckProblem(t, p)
		for _, f := range c.Files {
			if p.File == f.Name && !p.Warning {
				t.Fatalf("%s\n%s", p, f.Content)
			}
		}
	}
}

// FuzzLimitador converts any file: the rule files have no mistakes.
func FuzzLimitador(f *testing.F) {
	fuzzed(f, "testdata/limitador/*.txtar")
	f.Fuzz(func(t *testing.T, text []byte) {
		source := strictyaml.File{Name: "source", Content: text}
		sound(t, Limitador(source, nil))
		given := [][]string{{"method", "user"}, {"user"}, {"user_id", "path"}}
		sound(t, Limitador(source, given))
	})
}

// FuzzSpring converts any file: the rule file has no mistakes.
func FuzzSpring(f *testing.F) {
	fuzzed(f, "testdata/spring/*.txtar")
	f.Fuzz(func(t *testing.T, text []byte) {
		source := strictyaml.File{Name: "source", Content: text}
		sound(t, Spring(source, SpringOptions{Domain: "gateway"}))
		address, err := ParseSpringKey("address")
		if err != nil {
			t.Fatal(err)
		}
		byAddress := map[string]SpringKey{"": address}
		sound(t, Spring(source, SpringOptions{Domain: "gateway", Keys: byAddress}))
	})
}

package page

import (
	"os"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// rulesOf compiles the rules of a domain in YAML.
func rulesOf(t testing.TB, descriptors string) *ratelimit.Rules {
	t.Helper()
	content := []byte("domain: shop\ndescriptors:\n" + descriptors)
	set, problems := file.Parse([]file.File{{Name: "a.yaml", Content: content}}, file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems.Err())
	}
	return ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
}

// TestSentence reads the cases of testdata/sentences.txt.
func TestSentence(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/sentences.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	for _, c := range cases[1:] {
		rule, want, _ := strings.Cut(c, "\n")
		r := rulesOf(t, "  - "+rule).All()[0]
		if got := Sentence(r, &r.Limits[0]); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", rule, got, want)
		}
	}
}

// TestSentenceOfEach writes the limits of all algorithms and units.
func TestSentenceOfEach(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, a := range bucket.Algorithms {
		for _, u := range descriptors.Units {
			requests := int64(7)
			r := ratelimit.NewRules([]ratelimit.Domain{{Name: "shop", Descriptors: []ratelimit.Node{{
				Key: "owner", RateLimit: &ratelimit.Limit{Unit: u, Requests: &requests, Algorithm: a},
			}}}}, ratelimit.RulesOptions{}).All()[0]
			got := Sentence(r, &r.Limits[0])
			if want := "At most 7 requests per " + u.String() + " for each owner ("; got[:len(want)] != want || seen[got] {
				t.Errorf("%s, %s: %s", a, u, got)
			}
			seen[got] = true
		}
	}
}

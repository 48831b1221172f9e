package migrate

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
)

// page returns the example of testdata/spring/documentation.txtar that docs/migration has.
func page(t *testing.T) strictyaml.File {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/spring/documentation.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return strictyaml.File{Name: archive.Files[0].Name, Content: archive.Files[0].Data}
}

// TestSpringDecides sends random requests to the converted rules and to a model of RedisRateLimiter. Spring fills
// buckets once a second, so time goes on by whole seconds.
func TestSpringDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spring{reading: reading{Document: strictyaml.Read(page(t), SpringKind())}}
		s.read()
		compiled := ratelimit.NewRules(domains(Spring(page(t), SpringOptions{Domain: "gateway"})), ratelimit.RulesOptions{})
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter := ratelimit.New(ratelimit.Config{Store: store, Rules: func() *ratelimit.Rules { return compiled }})
		tokens, filled, denied := map[string]int64{}, map[string]time.Time{}, 0
		for i := range 5000 {
			r := s.routes[rand.IntN(len(s.routes))]                //nolint:gosec // G404: no secret
			owner := []string{"ann", "bob"}[rand.IntN(2)]          //nolint:gosec // G404: no secret
			time.Sleep(time.Duration(rand.IntN(30)) * time.Second) //nolint:gosec // G404: no secret
			bucket := r.ID + "." + owner
			have := r.Burst
			if last, known := filled[bucket]; known {
				have = min(r.Burst, tokens[bucket]+int64(time.Since(last).Seconds())*r.Rate)
			}
			want := have >= r.Tokens
			if want {
				have -= r.Tokens
			} else {
				denied++
			}
			tokens[bucket], filled[bucket] = have, time.Now()

			results := make([]ratelimit.Result, 1)
			limiter.DecideAll(t.Context(), []ratelimit.Query{{
				Domain: "gateway", Hits: uint64(r.Tokens), Beforehand: true,
				Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{
					{Key: "path", Value: r.text}, {Key: "owner", Value: owner},
				}}},
			}}, results)
			if results[0].Err != nil || results[0].Allowed != want {
				t.Fatalf("request %d to %s: allowed=%t (%v), Spring: %t with %d tokens", i, bucket, results[0].Allowed,
					results[0].Err, want, have)
			}
		}
		if denied == 0 {
			t.Error("no request was denied")
		}
	})
}

// TestSpringPage converts the example of docs/migration into the limits that the page has. They are the same but for
// `override`, which Spring does not have.
func TestSpringPage(t *testing.T) {
	const name = "docs/migration/from-spring-cloud-gateway.md"
	text := testenv.RepoFile(t, name)
	dump := func(files []strictyaml.File) string {
		set, problems := file.Parse(files, file.Config{})
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		live := rules.NewLive(rules.Options{})
		live.Activate(set, nil)
		return regexp.MustCompile(`at=\S+`).ReplaceAllString(rules.Dump(live.Active()), "")
	}
	theirs, ours := block(t, text, "yml", "spring.cloud"), block(t, text, "yaml", "domain:")
	lines := slices.DeleteFunc(strings.SplitAfter(ours, "\n"), func(line string) bool {
		return strings.Contains(line, "override")
	})
	want := dump([]strictyaml.File{{Name: "rules", Content: []byte(strings.Join(lines, ""))}})
	got := dump(Spring(strictyaml.File{Name: "page", Content: []byte(theirs)}, SpringOptions{Domain: "gateway"}).Files)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-the page +converted):\n%s", name, diff)
	}
}

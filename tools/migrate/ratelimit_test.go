package migrate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// TestRatelimit lists the changes that rules and settings cause.
func TestRatelimit(t *testing.T) {
	const rules = `domain: d
descriptors:
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: chosen, rate_limit: {unit: minute, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: path, value: /a/*, rate_limit: {unlimited: true}}
  - {key: path, value: /b/*, rate_limit: {unlimited: true}}
  - {key: path, value: /a/b/*, rate_limit: {unlimited: true}}
  - {key: path, value: "*.png", rate_limit: {unlimited: true}}
  - {key: "p*", value: "/a/b/c/d/e", rate_limit: {unlimited: true}}
  - {key: other, value: "/a/b/c/d*", rate_limit: {unlimited: true}}
`
	const always = "5. the store cannot decide\n`REDIS_TIMEOUT`, `REDIS_PERSECOND_TIMEOUT`\n`DEBUG_HOST`\n"
	for _, c := range []struct {
		name, rules string
		o           RatelimitOptions
		set, want   string
	}{
		{"all", rules, RatelimitOptions{DefaultAlgorithm: bucket.SlidingWindow}, "",
			"1. a rule without an algorithm: r:3\n2. a denied request\n3. a peek (`hits_addend: 0`) if nothing is left\n" +
				"4. several wildcards match: r:7 r:8 r:9\n5. the store cannot decide\n`limit_remaining` on a denial\n" +
				"`duration_until_reset` of a denied descriptor\nheaders and body of an answer\n" +
				"`REDIS_TIMEOUT`, `REDIS_PERSECOND_TIMEOUT`\n`DEBUG_HOST`\n"},
		{"strict", rules, RatelimitOptions{Strict: true}, "", "`DEBUG_HOST`\n"},
		{"all is set", rules, RatelimitOptions{Strict: true}, "REDIS_TIMEOUT DEBUG_HOST", ""},
		{"fixed windows", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
			RatelimitOptions{DefaultAlgorithm: bucket.FixedWindow}, "REDIS_TIMEOUT DEBUG_HOST RESPONSE_HEADERS RESPONSE_BODY",
			"2. a denied request\n3. a peek (`hits_addend: 0`) if nothing is left\n5. the store cannot decide\n" +
				"`limit_remaining` on a denial\n`duration_until_reset` of a denied descriptor\n"},
		{"calendar months", "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: month, requests_per_unit: 1}}\n" +
			"- {key: l, rate_limit: {unit: day, requests_per_unit: 1}}\n",
			RatelimitOptions{DefaultAlgorithm: bucket.SlidingWindow, CalendarMonths: true},
			"REDIS_TIMEOUT DEBUG_HOST RESPONSE_HEADERS RESPONSE_BODY",
			"1. a rule without an algorithm: r:4\n2. a denied request\n3. a peek (`hits_addend: 0`) if nothing is left\n" +
				"5. the store cannot decide\n`limit_remaining` on a denial\n`duration_until_reset` of a denied descriptor\n"},
		{"no limits", "domain: d\ndescriptors: [{key: k}]\n", RatelimitOptions{}, "", always},
	} {
		set, problems := file.Parse([]file.File{strictyaml.File{Name: "r", Content: []byte(c.rules)}}, file.Config{})
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		c.o.Set = func(variable string) bool { return strings.Contains(c.set, variable) }
		var got strings.Builder
		for _, change := range Ratelimit(set.Domains, c.o) {
			fmt.Fprint(&got, change.Row)
			if len(change.Places) > 0 {
				fmt.Fprint(&got, ": ", strings.Join(change.Places, " "))
			}
			got.WriteString("\n")
			if change.Here == "" {
				t.Errorf("%s: the change %s has no text", c.name, change.Row)
			}
		}
		if diff := cmp.Diff(c.want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestVariables(t *testing.T) {
	text := "\ufeff# of production\nA=1\n\nexport B= two words \r\nC=\"quoted=1\"\nD='x'\nE=\nF='\n"
	got, err := Variables("f", text)
	want := map[string]string{"A": "1", "B": "two words", "C": "quoted=1", "D": "x", "E": "", "F": "'"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = Variables("f", "A=1\nsecret hunter2\n- B=1\n=x\n")
	if want := "f:2: want NAME=VALUE\nf:3: want NAME=VALUE\nf:4: want NAME=VALUE"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

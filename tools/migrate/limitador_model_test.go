package migrate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

// TestLimitadorDecides sends random requests to the converted rules and to a model of Limitador. All are at one time,
// so windows do not matter. The cases are those of testdata/limitador that can be converted completely.
func TestLimitadorDecides(t *testing.T) {
	compared := 0
	for _, path := range cases.Archives(t, "testdata/limitador/*.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		given := descriptorOptions(string(archive.Comment))
		for _, f := range archive.Files {
			source := strictyaml.File{Name: f.Name, Content: f.Data}
			c := Limitador(source, given)
			if !strings.HasSuffix(f.Name, ".yaml") || c.Problems.HasErrors() {
				continue
			}
			compared++
			t.Run(path+"/"+f.Name, func(t *testing.T) {
				r := &limitador{reading: reading{Document: strictyaml.Read(source, LimitadorKind())}}
				for _, limits := range grouped(r.limits(), func(l *limit) string { return l.namespace }) {
					synctest.Test(t, func(t *testing.T) { compareWithModel(t, c, limits[0].namespace, limits, given) })
				}
			})
		}
	}
	if compared < 8 {
		t.Errorf("compared %d files", compared)
	}
}

func compareWithModel(t *testing.T, c *Converted, namespace string, limits []*limit, given [][]string) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rules := ratelimit.NewRules(domains(c), ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{Store: store, Rules: func() *ratelimit.Rules { return rules }})

	shapes := slices.Clone(given)
	var keys, values []string
	for _, l := range limits {
		for _, key := range l.keys {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		for _, value := range l.equal {
			values = append(values, value)
		}
		if len(given) == 0 {
			shapes = append(shapes, l.keys)
		}
	}
	slices.Sort(values)
	values = append(slices.Compact(values), "other", "another")
	model, denied := model{}, 0
	for i := range 3000 {
		// The descriptors of a request have one value for each key, as Envoy makes them from one request.
		request := map[string]string{"generic_key": "all"}
		for _, key := range keys {
			request[key] = values[rand.IntN(len(values))] //nolint:gosec // G404: no secret; the failure shows the request
		}
		q := ratelimit.Query{Domain: namespace}
		for _, shape := range shapes {
			var d descriptors.Descriptor
			for _, key := range shape {
				d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: request[key]})
			}
			if !slices.ContainsFunc(q.Descriptors, func(other descriptors.Descriptor) bool {
				return slices.Equal(other.Entries, d.Entries)
			}) {
				q.Descriptors = append(q.Descriptors, d)
			}
		}
		want := model.decide(limits, request)
		results := make([]ratelimit.Result, 1)
		limiter.DecideAll(t.Context(), []ratelimit.Query{q}, results)
		if results[0].Err != nil || results[0].Allowed != want {
			t.Fatalf("request %d, %v: allowed=%t (%v), Limitador: %t\n%s", i, request, results[0].Allowed, results[0].Err,
				want, c.Files[0].Content)
		}
		if !want {
			denied++
		}
	}
	if denied == 0 && slices.ContainsFunc(limits, func(l *limit) bool { return l.spec.Requests < 100 }) {
		t.Error("no request was denied")
	}
}

// model is Limitador: it counts by limit and by the values of its variables. A denied request is not counted.
type model map[string]int64

func (m model) decide(limits []*limit, request map[string]string) bool {
	var counters []string
	for i, l := range limits {
		applies, counter := true, fmt.Sprint(i)
		for _, key := range l.keys {
			if value, ok := l.equal[key]; ok && request[key] != value {
				applies = false
			}
			counter += fmt.Sprintf(" %q", request[key])
		}
		if !applies {
			continue
		}
		if m[counter]+1 > l.spec.Requests {
			return false
		}
		counters = append(counters, counter)
	}
	for _, counter := range counters {
		m[counter]++
	}
	return true
}

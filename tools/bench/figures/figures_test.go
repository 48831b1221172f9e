package figures

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestPage checks that docs/performance.md shows the report; `make bench` writes both.
func TestPage(t *testing.T) {
	report, err := Latest()
	if err != nil {
		t.Fatal(err)
	}
	got := testenv.RepoFile(t, Page)
	want, err := report.Into(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s does not show %s (-want +got):\n%s", Page, File, diff)
	}
}

// TestMarkdown writes a table. Columns without a value are left out.
func TestMarkdown(t *testing.T) {
	var r Report
	r.Put(Series{Name: "main", Load: "old"})
	r.Put(Series{Name: "main", Load: "5 rounds", Machine: "2 cores", Versions: "go1.26", Tables: []Table{{
		Title: "Redis", Rows: []Row{
			{Name: "empty", PerSecond: Over([]float64{1000, 3000, 2000}), PerSecondRatio: 1, P50: 12.34, P99: 1234.5},
			{Name: Raw, RedisCPU: Over([]float64{1.5}), RedisRatio: 0.051},
		},
	}}})
	const want = `before
<!-- bench main -->
5 rounds. 2 cores.
go1.26.

| **Redis** | requests/s, min / median / max | ratio | p50 / p99, µs | CPU of Redis, µs | ratio to the minimal script |
|---|---|---|---|---|---|
| empty | 1,000 / **2,000** / 3,000 | 1.00 | 12.3 / 1,234 |  |  |
| minimal script, called directly |  |  |  | 1.5 / **1.5** / 1.5 | 0.051 |
<!-- /bench main -->
after`
	got, err := r.Into("before\n<!-- bench main -->\nanything<!-- /bench main -->\nafter")
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := r.Into("<!-- bench main -->\n"); err == nil || !strings.Contains(err.Error(), "no markers") {
		t.Errorf("%v", err)
	}
}

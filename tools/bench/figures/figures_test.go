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
	r.Put(Series{Name: "main", Load: "5 rounds, 64 in flight", Machine: "2 cores", Versions: "go1.26", Tables: []Table{
		{Name: "redis", Title: "Redis", Rows: []Row{
			{Name: "empty", PerSecond: Over([]float64{1000, 3000, 2000}), PerSecondRatio: 1, P50: 12.34, P99: 1234.5},
			{Name: "in Redis", PerSecond: Over([]float64{4000}), PerSecondRatio: 2},
			{Name: Raw, RedisCPU: Over([]float64{1.5}), RedisRatio: 0.051},
		}},
		{Name: "unseen", Title: "Unseen"},
		{Name: "keys", Title: "Keys", Axis: "keys", Rows: []Row{{Name: "10", PerSecond: Over([]float64{1}), CPURatio: 1}}},
	}})
	const want = `before
<!-- bench main redis -->
5 rounds, 64 in flight.
2 cores.
go1.26.

| **Redis** | requests/s | ratio | p50 / p99, µs | CPU of Redis, µs | ratio to the minimal script |
|---|---|---|---|---|---|
| empty | 2,000 | 1.00 | 12.3 / 1,234 |  |  |
| in Redis | 4,000 | 2.00 |  |  |  |
| minimal script, called directly |  |  |  | 1.5 | 0.051 |
<!-- /bench main -->
between
<!-- bench main keys -->
5 rounds.
go1.26.

| **Keys** | ratio |
|---|---|
| 10 | 1.00 |
<!-- /bench main -->
after`
	got, err := r.Into("before\n<!-- bench main redis -->\nanything<!-- /bench main -->\nbetween\n" +
		"<!-- bench main keys -->\n<!-- /bench main -->\nafter")
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	for _, page := range []string{"<!-- bench main redis -->\n", "<!-- bench main other -->\n<!-- /bench main -->"} {
		if _, err := r.Into(page); err == nil || !strings.Contains(err.Error(), "no tables of") {
			t.Errorf("%s: %v", page, err)
		}
	}
	all := r.Series[0].Markdown()
	if !strings.Contains(all, "| in Redis | 4,000 / **4,000** / 4,000 |") {
		t.Errorf("what the command prints lacks spreads:\n%s", all)
	}
}

package figures

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/tools/loadgen"
)

// Page is the path of the page that shows the report.
const Page = "docs/performance.md"

// marker begins a place on the page: a series, and those of its tables that the page shows.
var marker = regexp.MustCompile(`<!-- bench ([a-z]+)((?: [a-z0-9-]+)+) -->\n`)

// Into writes the tables of a report between the markers of a page.
func (r *Report) Into(page string) (string, error) {
	var b strings.Builder
	for _, m := range marker.FindAllStringSubmatch(page, -1) {
		begin, end := m[0], "<!-- /bench "+m[1]+" -->"
		before, rest, _ := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		tables := r.Tables(m[1], strings.Fields(m[2])...)
		if !ended || len(tables) == 0 {
			return "", fmt.Errorf("%s: no %q, or no tables of %q", Page, end, m[0])
		}
		i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Name == m[1] })
		s := r.Series[i]
		if b.Len() > 0 { // the first one has what is the same for all
			s.Load, _, _ = strings.Cut(s.Load, ",")
			s.Machine = ""
		}
		s.Tables = tables
		b.WriteString(before + begin + s.Markdown() + end)
		page = after
	}
	return b.String() + page, nil
}

// shown returns the part of a table that the page and the pictures show: medians, and of a table of growth only what a
// request costs.
func (t Table) shown() Table {
	rows := slices.Clone(t.Rows)
	for i := range rows {
		r := &rows[i]
		for _, s := range []*Spread{&r.PerSecond, &r.CPU, &r.RedisCPU} {
			*s = Spread{Median: s.Median}
		}
		if t.Axis != "" {
			r.PerSecond, r.PerSecondRatio, r.P50Ratio, r.RedisCPURatio = Spread{}, 0, 0, 0
		}
	}
	t.Rows = rows
	return t
}

// Markdown returns the tables of a series.
func (s *Series) Markdown() string {
	var b strings.Builder
	for _, line := range []string{s.Load, s.Machine, s.Versions} {
		if line != "" {
			b.WriteString(line + ".\n")
		}
	}
	for _, t := range s.Tables {
		b.WriteString("\n")
		t.markdown(&b)
	}
	return b.String()
}

// column is a column of a table. It is left out if no row has a value.
type column struct {
	title string
	cell  func(Row) string
}

var columns = []column{
	{"requests/s", func(r Row) string { return spread(r.PerSecond, loadgen.Thousands[float64]) }},
	{"ratio", func(r Row) string { return ratio(r.PerSecondRatio) }},
	{"CPU of the server, µs", func(r Row) string { return spread(r.CPU, short) }},
	{"ratio", func(r Row) string { return ratio(r.CPURatio) }},
	{"p50 / p99, µs", func(r Row) string {
		return unless(r.P50, func(p50 float64) string { return short(p50) + " / " + short(r.P99) })
	}},
	{"ratio of p50", func(r Row) string { return ratio(r.P50Ratio) }},
	{"CPU of Redis, µs", func(r Row) string { return spread(r.RedisCPU, short) }},
	{"ratio", func(r Row) string { return ratio(r.RedisCPURatio) }},
	{"ratio to the minimal script", func(r Row) string { return ratio(r.RedisRatio) }},
	{"script calls", func(r Row) string {
		return unless(r.Scripts, func(calls float64) string { return fmt.Sprintf("%.3f", calls) })
	}},
	{"memory of the server, MB", func(r Row) string { return unless(r.Memory/1e6, short) }},
	{"idle connection, kB", func(r Row) string { return unless(r.Idle/1e3, short) }},
	{"requests/s to the base", func(r Row) string { return ratio(r.BaseRate) }},
	{"CPU to the base", func(r Row) string { return ratio(r.BaseCPU) }},
}

func (t *Table) markdown(b *strings.Builder) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(t.Rows, func(r Row) bool { return c.cell(r) != "" })
	})
	fmt.Fprintf(b, "| **%s** |", t.Title)
	for _, c := range shown {
		fmt.Fprintf(b, " %s |", c.title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(shown)) + "\n")
	for _, r := range t.Rows {
		fmt.Fprintf(b, "| %s |", r.Name)
		for _, c := range shown {
			fmt.Fprintf(b, " %s |", c.cell(r))
		}
		b.WriteString("\n")
	}
}

// unless formats a value, and returns "" for one that is unknown.
func unless(f float64, format func(float64) string) string {
	if f == 0 {
		return ""
	}
	return format(f)
}

func ratio(f float64) string {
	return unless(f, func(f float64) string {
		if f < 0.1 {
			return fmt.Sprintf("%.3f", f)
		}
		return fmt.Sprintf("%.2f", f)
	})
}

// spread writes min / **median** / max, or the median alone if nothing else is known.
func spread(s Spread, format func(float64) string) string {
	return unless(s.Median, func(float64) string {
		if s.Min == 0 {
			return format(s.Median)
		}
		return format(s.Min) + " / **" + format(s.Median) + "** / " + format(s.Max)
	})
}

// short writes a number with three digits.
func short(f float64) string {
	if f >= 1000 {
		return loadgen.Thousands(f)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3g", f), ".0")
}

package file

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// BenchmarkParse reads files of 40,000 rules at most, because the size of a file is bounded. The time and the memory of
// one rule must not grow with their number.
func BenchmarkParse(b *testing.B) {
	cfg := Config{CheckOptions: ratelimit.CheckOptions{MergeDomains: true}}
	for rules := 10; rules <= 100_000; rules *= 10 {
		var files []File
		for first := 0; first < rules; first += 40_000 {
			text := strings.Builder{}
			text.WriteString("domain: shop\ndescriptors:\n")
			for i := first; i < min(first+40_000, rules); i++ {
				fmt.Fprintf(&text, "  - {key: tenant, value: \"%08d\", rate_limit: {unit: hour, requests_per_unit: 100}}\n", i)
			}
			files = append(files, File{Name: fmt.Sprintf("rules/%06d.yaml", first), Content: []byte(text.String())})
		}
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if set, problems := Parse(files, cfg); len(set.Domains) != 1 {
					b.Fatal(problems)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rules), "ns/rule")
		})
	}
}

package descriptors

import (
	"fmt"
	"testing"
)

// BenchmarkFind finds one of many rules: by exact values, and by a value that only a rule without one matches. The time
// must not grow with the rules, except for misses of the cache, and nothing may be allocated.
func BenchmarkFind(b *testing.B) {
	for _, rules := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			var tree Tree[int]
			paths := make([][]Entry, rules)
			for i := range paths {
				paths[i] = []Entry{{Key: "tenant", Value: fmt.Sprintf("%08d", i)}, {Key: "user", Value: "alice"}}
				child := tree.Add(Pattern(paths[i][0]), MostSpecific)
				child.Add(Pattern{Key: "user"}, MostSpecific).Value = i + 1
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if at := i * 7919 % rules; tree.Find(paths[at]).Value != at+1 {
					b.Fatalf("rule %d is not found", at)
				}
			}
		})
	}
}

package descriptors

import (
	"fmt"
	"testing"
)

// shapes are rules of which a tree can have many. Each makes the n-th rule and an entry list that ends at it.
var shapes = []struct {
	name string
	rule func(n int) (path []Pattern, found []Entry)
}{
	{"value", func(n int) ([]Pattern, []Entry) {
		e := Entry{"tenant", fmt.Sprintf("%08d", n)}
		return []Pattern{Pattern(e)}, []Entry{e}
	}},
	{"key", func(n int) ([]Pattern, []Entry) {
		key := fmt.Sprintf("tenant-%08d", n)
		return []Pattern{{Key: key}}, []Entry{{key, "alice"}}
	}},
	{"nested", func(n int) ([]Pattern, []Entry) {
		e := Entry{"tenant", fmt.Sprintf("%08d", n)}
		return []Pattern{Pattern(e), {Key: "user"}}, []Entry{e, {"user", "alice"}}
	}},
	{"beginning", wildcardShape("/tenants/%08d/*", "/tenants/%08d/orders/1234")},
	{"end", wildcardShape("*.%08d.example.com", "shop.%08d.example.com")},
	{"both", wildcardShape("/v1/*/%08d", "/v1/orders/%08d")},
	{"middle", wildcardShape("*bot-%08d*", "Mozilla/5.0 (compatible; bot-%08d; +https://example.com/bot)")},
}

func wildcardShape(pattern, value string) func(n int) ([]Pattern, []Entry) {
	return func(n int) ([]Pattern, []Entry) {
		return []Pattern{{"path", fmt.Sprintf(pattern, n)}}, []Entry{{"path", fmt.Sprintf(value, n)}}
	}
}

// BenchmarkFind finds one of many rules of one shape. With hot descriptors, of which there are 10, the time shows the
// steps of a search; otherwise also how often memory is not in the cache of the processor. Nothing may be allocated.
func BenchmarkFind(b *testing.B) {
	for _, shape := range shapes {
		for rules := 10; rules <= 100_000; rules *= 10 {
			var tree Tree[int]
			found := make([][]Entry, rules)
			for i := range found {
				path, entries := shape.rule(i)
				node := &tree
				for _, p := range path {
					node = node.Add(p, MostSpecific)
				}
				node.Value, found[i] = i+1, entries
			}
			for name, used := range map[string]int{"hot": 10, "all": rules} {
				b.Run(fmt.Sprint(shape.name, "/", rules, "/", name), func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if at := i * 7919 % used * (rules / used); tree.Find(found[at]).Value != at+1 {
							b.Fatalf("rule %d is not found", at)
						}
					}
				})
			}
		}
	}
}

package networks_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/networks"
)

// randomPrefixes returns n prefixes as lists on the Internet have them: IPv4 of 16 to 32 bits, each tenth IPv6.
func randomPrefixes(r *rand.Rand, n int) []netip.Prefix {
	seen := map[netip.Prefix]bool{}
	for len(seen) < n {
		p := netip.PrefixFrom(randomIPv4(r), 16+r.IntN(17)).Masked()
		if len(seen)%10 == 0 {
			p = netip.PrefixFrom(randomIPv6(r), 29+r.IntN(36)).Masked()
		}
		seen[p] = true
	}
	list := make([]netip.Prefix, 0, n)
	for p := range seen {
		list = append(list, p)
	}
	return list
}

func randomIPv4(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32())))
}

func randomIPv6(r *rand.Rand) netip.Addr {
	a := [16]byte{0: 0x20, 1: byte(r.IntN(8))}
	binary.BigEndian.PutUint64(a[2:], r.Uint64())
	binary.BigEndian.PutUint32(a[10:], r.Uint32())
	return netip.AddrFrom16(a)
}

// randomTexts returns addresses as Envoy sends them, a fifth of them IPv6.
func randomTexts(r *rand.Rand, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		if texts[i] = randomIPv4(r).String(); i%5 == 0 {
			texts[i] = randomIPv6(r).String()
		}
	}
	return texts
}

const many = 100_000

// BenchmarkFind looks up random addresses among 100,000 prefixes. ns/op is the mean. median-ns and parse-ns are medians
// of groups of 16 look-ups, because a clock reading takes as long as a look-up: with reading the text, and that alone.
// B/prefix is the memory of the table.
func BenchmarkFind(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	tables := networks.Tables{Lists: networks.Lists{"office": randomPrefixes(r, many)}}
	texts := randomTexts(r, 1<<14)
	before := heap()
	table := tables.Of("office")
	bytes := float64(heap()-before) / many
	const group = 16
	median := func(look func(text string)) float64 {
		var times []time.Duration
		for i := 0; i+group <= len(texts); i += group {
			begin := time.Now()
			for _, text := range texts[i : i+group] {
				look(text)
			}
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		return float64(times[len(times)/2].Nanoseconds()) / group
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		table.Find(texts[i%len(texts)])
		i++
	}
	b.ReportMetric(median(func(text string) { table.Find(text) }), "median-ns")
	b.ReportMetric(median(func(text string) { _, _ = netip.ParseAddr(text) }), "parse-ns")
	b.ReportMetric(bytes, "B/prefix")
	runtime.KeepAlive(&tables)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFindDoesNotAllocate looks up addresses and networks that are in the table and that are not.
func TestFindDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	tables := networks.Tables{Lists: networks.Lists{"a": randomPrefixes(r, 1000)}}
	table := tables.Of("a")
	texts := append(randomTexts(r, 100), "2001:db8::/64", "10.0.0.0/8", "::ffff:10.0.0.1", "fe80::1%eth0")
	if got := testing.AllocsPerRun(10, func() {
		for _, text := range texts {
			table.Find(text)
		}
	}); got != 0 {
		t.Errorf("%v allocations for %d look-ups, want none", got, len(texts))
	}
}

// TestFindAgreesWithASearch compares the table with a search of all prefixes.
func TestFindAgreesWithASearch(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	lists := networks.Lists{"a": randomPrefixes(r, 1000), "b": randomPrefixes(r, 1000)}
	lists["b"] = append(lists["b"], lists["a"][:100]...) // the first named list has these
	tables := networks.Tables{Lists: lists}
	names := []string{"a", "b"}
	table := tables.Of(names...)
	texts := randomTexts(r, 1000)
	for _, p := range append(lists["a"], lists["b"]...) {
		texts = append(texts, p.String(), p.Addr().String())
	}
	for _, text := range texts {
		want, longest := "", -1
		for _, name := range names {
			if p, ok := lists.Longest(name, text); ok && p.Bits() > longest {
				want, longest = name, p.Bits()
			}
		}
		got := ""
		if i, ok := table.Find(text); ok {
			got = names[i]
		}
		if got != want {
			t.Fatalf("seed %d: Find(%q) = %q, want %q", seed, text, got, want)
		}
	}
	if tables.Of(names...) != table {
		t.Error("the same lists have two tables")
	}
}

func TestFind(t *testing.T) {
	prefixes := func(texts ...string) []netip.Prefix {
		return networks.Read(texts, func(_ int, m suggest.Mistake) { t.Fatal(m) })
	}
	tables := networks.Tables{Lists: networks.Lists{
		"wide":  prefixes("10.0.0.0/8", "2001:db8::/32", "fe80::/10"),
		"small": prefixes("10.1.0.0/16", "10.1.2.3", "10.9.0.0/16"),
		"late":  prefixes("10.9.0.0/16"),
	}}
	names := []string{"wide", "small", "late"}
	for _, c := range []struct{ text, want string }{
		{"10.0.0.1", "wide"},
		{"10.1.0.1", "small"},
		{"10.1.2.3", "small"},
		{"10.9.0.1", "small"}, // two lists have the prefix
		{"11.0.0.1", ""},
		{"2001:db8::1", "wide"},
		{"2001:DB8:0::1", "wide"},
		{"2001:db9::1", ""},
		{"::ffff:10.1.0.1", "small"},
		{"::ffff:a01:1", "small"},
		{"fe80::1%eth0", "wide"},
		{"fe80::1%", ""},
		{"10.0.0.1%eth0", ""},
		{"fe80::1%eth0/64", ""},
		{"10.1.0.0/16", "small"},
		{"10.1.0.0/15", "wide"},
		{"10.0.0.0/7", ""},
		{"10.1.2.3/24", "small"}, // what a mask leaves has no such bits, but the network is clear
		{"2001:db8:1:2::/64", "wide"},
		{"::ffff:10.1.0.0/112", "small"},
		{"::/0", ""},
		{"", ""},
		{"unknown", ""},
		{"010.0.0.1", ""},
		{"10.0.0.1:80", ""},
		{"[2001:db8::1]", ""},
		{"10.0.0.1, 10.0.0.2", ""},
		{"10.0.0.0/8/8", ""},
		{fmt.Sprintf("%0100d", 1), ""},
	} {
		got := ""
		if i, ok := tables.Of(names...).Find(c.text); ok {
			got = names[i]
		}
		if got != c.want {
			t.Errorf("Find(%q) = %q, want %q", c.text, got, c.want)
		}
	}
	if _, ok := tables.Of("none").Find("10.0.0.1"); ok {
		t.Error("an unknown list has an address")
	}
}

// FuzzFind must not panic, whatever a client sends, and must agree with a search of all prefixes.
func FuzzFind(f *testing.F) {
	for _, text := range []string{"10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.0/8", "::/0", "%", "/"} {
		f.Add(text)
	}
	lists := networks.Lists{"a": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2000::/3")}}
	tables := networks.Tables{Lists: lists}
	f.Fuzz(func(t *testing.T, text string) {
		_, got := tables.Of("a").Find(text)
		if _, want := lists.Longest("a", text); got != want {
			t.Errorf("Find(%q) = %v, want %v", text, got, want)
		}
	})
}

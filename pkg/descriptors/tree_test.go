package descriptors_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// TestFind reads as: in a tree of these rules, this descriptor ends at that rule.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		rules      string // patterns, a level each, joined by " > "; rules joined by ", "
		descriptor string
		want       string
		inOrder    string // the result with FileOrder, if it differs
	}{
		{rules: "path=/a, path", descriptor: "path=/a", want: "path=/a"},
		{rules: "path=/a, path", descriptor: "path=/b", want: "path"},
		{rules: "path, path=/*, path=/a", descriptor: "path=/a", want: "path=/a"},
		{rules: "path, path=/*, path=/a", descriptor: "path=/b", want: "path=/*"},
		{rules: "path=/api/*, path=/api/v1/*", descriptor: "path=/api/v1/x", want: "path=/api/v1/*", inOrder: "path=/api/*"},
		{rules: "path=/*, path=/**", descriptor: "path=/**", want: "path=/*", inOrder: "path=/**"},
		{rules: "path=/*/b, path=/a/*", descriptor: "path=/a/b", want: "path=/*/b"},
		{rules: "path=*", descriptor: "path=", want: "path=*"},
		{rules: "path=a*b*c", descriptor: "path=abc", want: "path=a*b*c"},
		{rules: "path=a*b*c", descriptor: "path=aXbYbZc", want: "path=a*b*c"},
		{rules: "path=a*b*c", descriptor: "path=acb", want: ""},
		{rules: "path=ab*ba", descriptor: "path=aba", want: ""},
		{rules: "pa*", descriptor: "path=anything", want: "pa*"},
		{rules: "pa*=x", descriptor: "path=y", want: ""},
		{rules: "*=x", descriptor: "path=x", want: "*=x"},
		{rules: "path", descriptor: "path=", want: "path"},
		{rules: "foo_bar", descriptor: "foo=bar", want: ""},
		{rules: "foo", descriptor: "foo=bar > x=y", want: ""},
		{rules: "foo > x", descriptor: "foo=bar", want: "(none)"},
		{rules: "foo > x", descriptor: "foo=bar > x=y", want: "foo > x"},
		{rules: "foo > x", descriptor: "x=y > foo=bar", want: ""},
		{rules: "a=x > b=y, a > b", descriptor: "a=x > b=z", want: ""}, // Find never goes back
		{rules: "a=* > b, a > c", descriptor: "a=1 > b=2", want: "a=* > b"},
		{rules: "Path", descriptor: "path=x", want: ""},
	} {
		for order, want := range map[descriptors.WildcardOrder]string{
			descriptors.MostSpecific: c.want, descriptors.FileOrder: cmpOr(c.inOrder, c.want),
		} {
			var tree descriptors.Tree[string]
			for rule := range strings.SplitSeq(c.rules, ", ") {
				node := &tree
				for _, e := range entries(rule) {
					node = node.Add(descriptors.Pattern(e), order)
				}
				node.Value = rule
			}
			got := ""
			if node := tree.Find(entries(c.descriptor)); node != nil {
				got = cmpOr(node.Value, "(none)")
			}
			if got != want {
				t.Errorf("rules %q, order %d: %q ends at %q, want %q", c.rules, order, c.descriptor, got, want)
			}
		}
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func entries(s string) []descriptors.Entry {
	var list []descriptors.Entry
	for level := range strings.SplitSeq(s, " > ") {
		key, value, _ := strings.Cut(level, "=")
		list = append(list, descriptors.Entry{Key: key, Value: value})
	}
	return list
}

// FuzzAppendField searches for two different lists of texts with the same key.
func FuzzAppendField(f *testing.F) {
	f.Add("x_k2_y", "", "x", "k2_y")
	f.Add("1:a", "b", "1", ":ab")
	f.Add("", "", "0:", "")
	f.Add("{tag}", "a", "tag", "a")
	f.Add(strings.Repeat("a", 65), "", strings.Repeat("a", 64), "a")
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		a := descriptors.AppendField(descriptors.AppendField(nil, a1), a2)
		b := descriptors.AppendField(descriptors.AppendField(nil, b1), b2)
		if (string(a) == string(b)) != (a1 == b1 && a2 == b2) {
			t.Errorf("[%q %q] is %q, [%q %q] is %q", a1, a2, a, b1, b2, b)
		}
		if strings.Contains(string(a), "{") {
			t.Errorf("[%q %q] chooses its own slot: %q", a1, a2, a)
		}
		one := descriptors.AppendField(nil, a1)
		if string(one) == string(a) {
			t.Errorf("[%q] and [%q %q] are both %q", a1, a1, a2, a)
		}
	})
}

// FuzzFind checks that a descriptor whose entries equal a rule without wildcards always ends at that rule.
func FuzzFind(f *testing.F) {
	f.Add("path", "/a", "*", "/*")
	f.Fuzz(func(t *testing.T, key, value, wildKey, wildValue string) {
		exact := descriptors.Pattern{Key: key, Value: value}
		if exact.Wildcard() {
			return
		}
		var tree descriptors.Tree[int]
		tree.Add(descriptors.Pattern{Key: wildKey + "*", Value: wildValue}, descriptors.MostSpecific).Value = 1
		tree.Add(exact, descriptors.MostSpecific).Value = 2
		node := tree.Find([]descriptors.Entry{{Key: key, Value: value}})
		if node == nil || node.Value == 0 || value != "" && node.Value != 2 {
			t.Errorf("%q=%q beside %q*=%q: %+v", key, value, wildKey, wildValue, node)
		}
	})
}

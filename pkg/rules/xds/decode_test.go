package xds

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestDecode reads each archive of testdata: resources.json has the resources of a response, overlay.yaml, if it is
// there, the overlay. The line MERGE_DOMAIN_CONFIG=true before the first file sets that.
func TestDecode(t *testing.T) {
	for _, path := range cases.Archives(t, "testdata/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, o, last := &response{typeURL: typeURL}, poll.File{}, ""
			for _, f := range archive.Files {
				switch f.Name {
				case "resources.json":
					r.resources = marshal(t, f.Data)
				case "overlay.yaml":
					o = poll.File{Name: f.Name, Content: f.Data}
				}
				if f.Name != "want" {
					last = f.Name
				}
			}
			cfg := Config{Check: ratelimit.CheckOptions{
				MergeDomains: bytes.Contains(archive.Comment, []byte("MERGE_DOMAIN_CONFIG=true")),
			}}
			set, problems := decode(r, o, &cfg)
			if o.Name != "" {
				checkOverlayAlike(t, r, o, cfg, problems)
			}
			got := ""
			if len(problems) > 0 {
				got = problems.Error() + "\n"
			}
			if problems.HasErrors() {
				got += "refused:\n" + detail(problems) + "\n"
			} else {
				live := rules.NewLive(rules.Options{})
				live.Activate(set, nil)
				got += "rules:\n" + rules.Dump(live.Active())
			}
			if *update {
				cases.Set(archive, last, "want", got)
				cases.Write(t, path, archive)
				return
			}
			cases.Check(t, archive, "want", archive.Comment, got)
		})
	}
}

// checkOverlayAlike compares the errors of decode with those of CheckOverlay for the same overlay and resources.
func checkOverlayAlike(t *testing.T, r *response, overlay poll.File, cfg Config, problems rules.Problems) {
	t.Helper()
	path := filepath.Join(t.TempDir(), overlay.Name)
	if err := os.WriteFile(path, overlay.Content, 0o600); err != nil {
		t.Fatal(err)
	}
	without, _ := decode(r, poll.File{}, &cfg)
	live := rules.NewLive(rules.Options{})
	live.Activate(without, nil)
	_, checked := CheckOverlay(path, []byte(rules.Dump(live.Active())), &cfg)
	errorsOf := func(problems rules.Problems) map[string]bool {
		all := map[string]bool{}
		for _, p := range problems.Errors() {
			if !strings.Contains(p.File, "hash_tag") && !strings.HasPrefix(p.Message, "the rule has no rate limit of") {
				all[fmt.Sprint(p.Line, ":", p.Column, " ", p.Message)] = true // the dump has no rules without a limit
			}
		}
		return all
	}
	if diff := cmp.Diff(errorsOf(problems), errorsOf(checked)); diff != "" {
		t.Errorf("the errors of CheckOverlay differ from those of the service (-service +check):\n%s", diff)
	}
}

// marshal returns resources in JSON as the generated code writes them.
func marshal(t testing.TB, list []byte) (resources []anyMessage) {
	t.Helper()
	var raw []json.RawMessage
	if err := json.Unmarshal(list, &raw); err != nil {
		t.Fatal(err)
	}
	for _, text := range raw {
		c := new(ratelimitv3.RateLimitConfig)
		if err := protojson.Unmarshal(text, c); err != nil {
			t.Fatal(err)
		}
		content, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, anyMessage{typeURL, string(content)})
	}
	return resources
}

// field returns a field of type Bytes.
func field(number int, content string) string {
	size := len(content)
	b := []byte{byte(number<<3 | 2)}
	for ; size >= 0x80; size >>= 7 {
		b = append(b, byte(size)|0x80)
	}
	return string(append(b, byte(size))) + content
}

// hostile are responses that no server should send, by what is wrong with them, and the beginning of their refusal.
func hostile() map[string]struct{ message, want string } {
	message := func(config string) string {
		return field(2, field(1, typeURL)+field(2, config)) + field(4, typeURL) + field(5, "n")
	}
	domain := field(1, "a") + field(2, "shop")
	deep := field(1, "k")
	for range 5000 {
		deep = field(1, "k") + field(4, deep)
	}
	list := field(6, field(1, ""))
	for range 5000 {
		list = field(6, field(1, list))
	}
	metadata := field(8, field(1, field(1, "m")+field(2, list)))
	values := func(n int) string { return field(8, strings.Repeat(field(1, field(2, "")), n)) }
	most := strings.Repeat(field(3, field(1, "k")+values(wire.MostValues)), maxValues/wire.MostValues)
	return map[string]struct{ message, want string }{
		"a million empty descriptors": {message(domain + strings.Repeat(field(3, ""), 1_000_000)),
			"response: more than 100000 resources and descriptors in one response"},
		"a million resources": {strings.Repeat(field(2, ""), 1_000_000) + field(4, typeURL),
			"response: more than 100000 resources and descriptors in one response"},
		"a million replaced names": {
			message(domain + field(3, field(1, "k")+field(3, strings.Repeat(field(5, ""), 1_000_000)))),
			"response: more than 100000 resources and descriptors in one response",
		},
		"deep descriptors": {message(domain + field(3, deep)),
			"resource `a`: descriptors are nested deeper than 32 levels"},
		"deep metadata": {message(domain + field(3, field(1, "k")+metadata)),
			"resource `a`: `metadata` is nested too deeply"},
		"a value of metadata too many": {message(domain + field(3, field(1, "k")+values(wire.MostValues+1))),
			"resource `a`: `metadata` has more than 4096 values"},
		"metadata in two parts": {message(domain + field(3, field(1, "k")+values(1)+values(wire.MostValues))),
			"resource `a`: `metadata` has more than 4096 values"},
		"a million values in a list": {
			message(domain + field(3, field(8, field(1, field(2, field(6, strings.Repeat(field(1, ""), 1_000_000))))))),
			"resource `a`: `metadata` has more than 4096 values",
		},
		"metadata of many descriptors": {message(domain + most + field(3, values(1))),
			"response: more than 65536 values in `metadata` of one response"},
		"most metadata, of descriptors of one key": {message(domain + most),
			"resource `a`: descriptors[1]: duplicate descriptor composite key `shop.k`"},
		"names that repeat a long one": {
			message(domain + field(3, field(1, strings.Repeat("k", 1<<20))+strings.Repeat(field(4, field(1, "k")), 100))),
			"response: the names of all rules of one response are longer than 32 MiB",
		},
		"too many wildcards": {message(domain + strings.Repeat(field(3, field(1, "k*")), maxWildcards+1)),
			"response: more than 10000 descriptors with a wildcard in one response"},
		"names that are not UTF-8": {message(field(1, "\xff") + field(2, "\xfe") + field(3, field(1, "\xfd"))),
			"resource `\uFFFD`: domain: `\uFFFD` is not UTF-8\n" +
				"resource `\uFFFD`: descriptors[0].key: `\uFFFD` is not UTF-8"},
		"a unit without a meaning": {message(domain + field(3, field(1, "k")+field(3, "\x08\x80\x02"))),
			"resource `a`: descriptors[0].rate_limit.unit: unit 255 is unknown"},
		"a resource that is no message": {message("\x0a\x05a"), "resource 1: malformed protobuf message"},
		"a response that is no message": {"\x0a\x05a", "response: malformed protobuf message"},
		"90,000 mistakes": {message(domain + strings.Repeat(field(3, field(1, "k")), 90_000)),
			"resource `a`: descriptors[1]: duplicate"},
	}
}

// read decodes a message of a server as a Client does.
func read(message string) (rules.Set, rules.Problems) {
	r, err := readResponse(message)
	if err != nil {
		return rules.Set{}, rules.Problems{problem("response", "", err.Error())}
	}
	return decode(r, poll.File{}, &Config{})
}

// TestHostileResponses refuses each with all its mistakes, in a text that the server can receive.
func TestHostileResponses(t *testing.T) {
	for name, c := range hostile() {
		set, problems := read(c.message)
		got := detail(problems)
		if set.Domains != nil || !strings.HasPrefix(got, c.want) || len(got) > maxDetail+100 {
			t.Errorf("%s: %d domains, refused with %d bytes: %.300s", name, len(set.Domains), len(got), got)
		}
	}
}

// FuzzDecode: no message makes the client panic. A set without errors has only limits that can be counted, and the
// generated code reads the same messages.
func FuzzDecode(f *testing.F) {
	for _, c := range hostile() {
		if len(c.message) < 1<<16 {
			f.Add([]byte(c.message))
		}
	}
	for _, path := range cases.Archives(f, "testdata/*.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if file.Name != "resources.json" {
				continue
			}
			message := field(1, "1") + field(4, typeURL)
			for _, a := range marshal(f, file.Data) {
				message += field(2, field(1, a.typeURL)+field(2, a.value))
			}
			f.Add([]byte(message))
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		set, problems := read(string(message))
		again, _ := read(string(message))
		if fmt.Sprint(set.Generation, len(set.Domains)) != fmt.Sprint(again.Generation, len(again.Domains)) {
			t.Error("decoding twice gives different rules")
		}
		if problems.HasErrors() != (detail(problems) != "") || problems.HasErrors() && set.Domains != nil {
			t.Errorf("%d domains with problems:\n%s", len(set.Domains), problems)
		}
		for _, rule := range ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{}).All() {
			for _, l := range rule.Limits {
				if err := l.Check(); err != nil && !rule.Unlimited {
					t.Errorf("limit %+v: %v", l, err)
				}
			}
		}
		if !problems.HasErrors() {
			checkGenerated(t, string(message), set)
		}
	})
}

// checkGenerated compares rules with the resources as the generated code reads them.
func checkGenerated(t *testing.T, message string, set rules.Set) {
	t.Helper()
	r, err := readResponse(message)
	if err != nil {
		t.Fatal(err)
	}
	domains := map[string]*ratelimitv3.RateLimitConfig{}
	for _, a := range r.resources {
		c := new(ratelimitv3.RateLimitConfig)
		if err := proto.Unmarshal([]byte(a.value), c); err != nil {
			return // a name of a resource or of a replaced limit is not UTF-8
		}
		domains[c.GetDomain()] = c
	}
	for _, d := range set.Domains {
		compare(t, d.Descriptors, domains[d.Name].GetDescriptors())
	}
}

func compare(t *testing.T, nodes []ratelimit.Node, want []*ratelimitv3.RateLimitDescriptor) {
	t.Helper()
	if len(nodes) != len(want) {
		t.Fatalf("%d descriptors, want %d", len(nodes), len(want))
	}
	for i, n := range nodes {
		w := want[i]
		if n.Key != w.GetKey() || n.Value != w.GetValue() || n.Shadow != w.GetShadowMode() ||
			n.DetailedMetric != w.GetDetailedMetric() || n.Quota != w.GetQuotaMode() ||
			(n.RateLimit == nil) != (w.GetRateLimit() == nil) || len(n.Metadata) != len(w.GetMetadata().GetFields()) {
			t.Errorf("%+v, want %v", n, w)
		}
		if l := n.RateLimit; l != nil {
			requests := int64(0)
			if l.Requests != nil {
				requests = *l.Requests
			}
			limit := w.GetRateLimit()
			if requests != int64(limit.GetRequestsPerUnit()) || int32(l.Unit) != int32(limit.GetUnit()) ||
				l.Unlimited != limit.GetUnlimited() || l.Name != limit.GetName() || len(l.Replaces) != len(limit.GetReplaces()) {
				t.Errorf("%+v, want %v", l, limit)
			}
		}
		compare(t, n.Descriptors, w.GetDescriptors())
	}
}

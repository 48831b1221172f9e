// Package page shows the pages of the debug listener in a real Chromium.
package page

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

var update = flag.Bool("update", false, "write the pictures of docs/pictures")

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testenv.WithService(func(b string) int { binary = b; return m.Run() }, "-tags=grpcnotrace"))
}

// manyRules has 10,000 rules. The name of one is HTML, and that of another is long.
func manyRules() string {
	var b strings.Builder
	b.WriteString("domain: shop\ndescriptors:\n" +
		"  - {key: tenant, rate_limit: {name: per-tenant, unit: hour, requests_per_unit: 2}}\n" +
		"  - {key: '<script>pwned=1</script>', value: '\"><img src=x onerror=pwned=1>',\n" +
		"     rate_limit: {unit: day, requests_per_unit: 5}}\n")
	fmt.Fprintf(&b, "  - {key: %s, rate_limit: {unit: day, requests_per_unit: 5}}\n", strings.Repeat("long", 100))
	for i := range 9_997 {
		fmt.Fprintf(&b, "  - {key: path, value: /v1/%d/*, shadow_mode: true,\n"+
			"     rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i+1)
	}
	return b.String()
}

func serve(t *testing.T, rules string) (page, json string) {
	t.Helper()
	s := testenv.ServiceIn(t, testenv.RulesRootWith(t, rules), binary, "RUNTIME_ROOT=.")
	return fmt.Sprintf("http://localhost:%d", s.DebugPort), fmt.Sprintf("http://localhost:%d/json", s.HTTPPort)
}

// ask sends a request with a descriptor: KEY=VALUE,...
func ask(t *testing.T, json, descriptor string) {
	t.Helper()
	var entries []string
	for pair := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(pair, "=")
		entries = append(entries, fmt.Sprintf(`{"key":%q,"value":%q}`, key, value))
	}
	res, err := http.Post(json, "application/json", strings.NewReader(fmt.Sprintf(
		`{"domain":"shop","descriptors":[{"entries":[%s]}]}`, strings.Join(entries, ","))))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// TestPages shows each page of a service with 10,000 rules in each view.
func TestPages(t *testing.T) {
	page, json := serve(t, manyRules())
	for range 5 {
		ask(t, json, "tenant=a")
		ask(t, json, "path=/v1/0/x")
	}
	p := open(t)
	for _, path := range []string{
		"/", "/rules?page=1", "/rules?page=100", "/rules?filter=script", "/rules?filter=nothing", "/ask",
		"/ask?domain=shop&descriptor=tenant%3Da", "/ask?check=1&domain=shop",
		"/ask?domain=shop&descriptor=%3Cscript%3Epwned=1%3C/script%3E",
	} {
		for _, v := range views {
			begin := time.Now()
			p.show(v, page+path)
			t.Logf("%s, %s: %d ms", path, v.name, time.Since(begin).Milliseconds())
			p.check(path + ", " + v.name)
			name := strings.Map(func(r rune) rune {
				if strings.ContainsRune("/?&=% ", r) {
					return '_'
				}
				return r
			}, path+" "+v.name)
			picture := p.picture(!strings.Contains(path, "page"))
			if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), picture, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text := eval[string](p, `document.body.innerText`); !strings.Contains(text, "<script>pwned") {
		t.Errorf("a value of the form is not shown as text:\n%s", text)
	}
}

// TestKeyboard asks about a descriptor and turns a page by the keyboard alone.
func TestKeyboard(t *testing.T) {
	page, json := serve(t, manyRules())
	ask(t, json, "tenant=a")
	p := open(t)
	walk := func(want ...string) {
		t.Helper()
		for _, w := range want {
			p.press("Tab")
			if got := p.focus(); got != w {
				t.Fatalf("Tab leads to %q, want %q", got, w)
			}
		}
	}
	follow := func() { t.Helper(); p.press("Enter"); p.await("Page.loadEventFired") }

	p.show(views[0], page+"/")
	walk("a Skip to the content")
	p.press("Enter")
	if got := p.focus(); got != "main main" {
		t.Fatalf("the link to the content leads to %q", got)
	}
	walk("a Stop refreshing")
	follow()
	if eval[bool](p, `!!document.querySelector("meta[http-equiv]")`) {
		t.Error("the page still refreshes")
	}
	walk("a Skip to the content", "a Overview", "a Rules", "a Explain")
	follow()
	walk("a Skip to the content", "a Overview", "a Rules", "a Explain", "input domain")
	p.enter("shop")
	walk("textarea descriptor")
	p.enter("tenant=a")
	walk("button Explain")
	follow()
	if text := eval[string](p, `document.body.innerText`); !strings.Contains(text, "per-tenant: 1 of 2 used") ||
		!strings.Contains(text, "=> allowed (nothing was charged)") {
		t.Errorf("the answer is:\n%s", text)
	}
	walk("a Skip to the content", "a Overview", "a Rules")
	follow()
	walk("a Skip to the content", "a Overview", "a Rules", "a Explain", "input filter")
	p.enter("V1/")
	walk("button Filter")
	follow()
	walk("a Skip to the content", "a Overview", "a Rules", "a Explain", "input filter", "button Filter", "a Next page")
	follow()
	if text := eval[string](p, `document.body.innerText`); !strings.Contains(text, "9997 of 10000 rules, page 2 of 100") {
		t.Errorf("the next page is:\n%.300s", text)
	}
}

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// scene is what runs while the commands of a page are typed.
type scene struct {
	environment []string // of the shell
	// addresses are pairs: an address, or another text, as the page writes it, and as the test has it.
	addresses []string
	// changes happen before the first command that begins with such a text.
	changes map[string]func()
	// plain is how to compare outputs with numbers that vary. Default: with `...` for any text, as in the cookbook.
	plain func(text string) string
}

// TestTranscripts types the commands of pages outside the cookbook, in a directory with the files of the page, and
// compares what they print. Each question of docs/README.md has such a page, or one of the cookbook.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	scenes := map[string]func(t *testing.T, dir string) scene{
		"algorithms.md":                          func(*testing.T, string) scene { return scene{} },
		"doctor.md":                              doctorScene,
		"migration/from-envoyproxy-ratelimit.md": migrationScene,
		"performance.md":                         benchScene,
		"runbook.md":                             outageScene,
		"tls.md":                                 portScene,
	}
	_, questions, _ := strings.Cut(testenv.RepoFile(t, "docs/README.md"), "\n## Questions\n")
	questions, _, _ = strings.Cut(questions, "\n## ")
	links := regexp.MustCompile(`\]\((.*?\.md)`).FindAllStringSubmatch(questions, -1)
	for _, link := range links {
		if page := link[1]; scenes[page] == nil && !strings.HasPrefix(page, "cookbook/") {
			t.Errorf("docs/README.md has a question for %s, whose commands no test runs", page)
		}
	}
	if len(links) < 10 {
		t.Errorf("docs/README.md has %d questions, want ten or more", len(links))
	}
	for page, begin := range scenes {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			r, _, err := readBlocks(testenv.RepoFile(t, "docs/"+page))
			if err != nil || len(r.transcript) == 0 {
				t.Fatalf("%d commands, %v; want some", len(r.transcript), err)
			}
			if _, err := buildTools(); err != nil {
				t.Fatal(err)
			}
			dir := r.write(t)
			s := begin(t, dir)
			inTest := strings.NewReplacer(s.addresses...)
			for i := 0; i < len(s.addresses); i += 2 {
				s.addresses[i], s.addresses[i+1] = s.addresses[i+1], s.addresses[i]
			}
			onPage := strings.NewReplacer(s.addresses...)
			terminal := newTerminal(t, dir, s.environment...)
			for _, e := range r.transcript {
				for beginning, change := range s.changes {
					if strings.HasPrefix(e.command, beginning) {
						delete(s.changes, beginning)
						change()
					}
				}
				got := onPage.Replace(terminal.run(inTest.Replace(e.command)))
				t.Logf("$ %s%s", e.command, got) // for authors of pages
				if s.plain == nil && !printed(e.prints).MatchString(got) ||
					s.plain != nil && s.plain(got) != s.plain(e.prints) {
					t.Fatalf("$ %s\ngot\n%s\nthe page says\n%s", e.command, got, e.prints)
				}
			}
			if len(s.changes) > 0 {
				t.Errorf("no command begins with one of %v", s.changes)
			}
		})
	}
}

// startPage starts the service with the rule files of a page, and returns it with the addresses that pages write.
func startPage(t *testing.T, dir string, environment ...string) (s *service, addresses []string) {
	t.Helper()
	s = startServiceIn(t, dir, append(environment, "RUNTIME_ROOT=.", "RUNTIME_APPDIRECTORY=rules")...)
	return s, []string{
		"localhost:8081", testenv.Loopback(s.grpcPort),
		"localhost:8080", testenv.Loopback(s.httpPort),
		"localhost:6070", strings.TrimPrefix(s.debug, "http://"),
	}
}

// migrationScene has two services that decide by the rules of the page: one as envoyproxy/ratelimit does, and one by
// default.
func migrationScene(t *testing.T, dir string) scene {
	t.Helper()
	start := func(compatibility string) string {
		s := startServiceIn(t, dir, "RUNTIME_ROOT=.", "RUNTIME_APPDIRECTORY=config", "COMPATIBILITY="+compatibility)
		return testenv.Loopback(s.grpcPort)
	}
	return scene{addresses: []string{"localhost:8081", start("strict"), "localhost:9081", start("default")}}
}

// benchScene has a service that counts in Redis.
func benchScene(t *testing.T, dir string) scene {
	t.Helper()
	redis := testenv.Redis(t)
	s, addresses := startPage(t, dir, "REDIS_URL="+redis.Addr, "REDIS_TIMEOUT="+longTimeout)
	return scene{
		addresses: append(addresses, "localhost:6379", redis.Addr,
			"bench --domain", "bench --timeout 1m --address "+testenv.Loopback(s.grpcPort)+" --domain"),
		plain: plain,
	}
}

// outageScene has a service whose Redis is killed after some requests, and starts again later.
func outageScene(t *testing.T, dir string) scene {
	t.Helper()
	writeRules(t, dir)
	redis := testenv.Redis(t)
	s, addresses := startPage(t, dir, "REDIS_URL="+redis.Addr, "REDIS_TIMEOUT="+longTimeout)
	ask := func(tenant, more string) {
		_, err := http.Post(s.http+"/json", "application/json", strings.NewReader(fmt.Sprintf(
			`{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":%q}]%s}]}`, tenant, more)))
		if err != nil {
			t.Error(err)
		}
	}
	requests := func() {
		for range 3 {
			ask("acme", "")
		}
	}
	return scene{
		addresses: append(addresses, "localhost:6379", redis.Addr),
		changes: map[string]func(){
			"extauthz doctor": func() {
				requests()
				redis.Kill()
				testenv.Eventually(t, func() error {
					if ask("other", `,"hits_addend":0`); s.metric(t, "extauthz_store_up") == 1 {
						return errors.New("extauthz_store_up is 1")
					}
					return nil
				}, "the service to see that Redis does not answer")
				requests()
			},
			"until curl": redis.Restart,
		},
	}
}

// portScene has a service with client certificates.
func portScene(t *testing.T, dir string) scene {
	t.Helper()
	writeRules(t, dir)
	c := newCertificates(t)
	testenv.WriteCertificate(t, c.ca.Issue(t, tlsName, time.Hour, "extauthz"), c.file("tls.crt"), c.file("tls.key"))
	_, addresses := startPage(t, dir, c.settings()...)
	return scene{addresses: append(addresses, "/certs/", c.dir+"/")}
}

// writeRules writes the rules of pages that do not show them.
func writeRules(t *testing.T, dir string) {
	t.Helper()
	const rules = "domain: shop\ndescriptors:\n" +
		"  - {key: tenant, rate_limit: {name: per-tenant, unit: hour, requests_per_unit: 5}}\n"
	err := errors.Join(os.Mkdir(filepath.Join(dir, "rules"), 0o755),
		os.WriteFile(filepath.Join(dir, "rules", "shop.yaml"), []byte(rules), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

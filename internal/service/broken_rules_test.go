package service

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// brokenRule is a rule file that envoyproxy/ratelimit refuses.
type brokenRule struct {
	theirs  string // its message
	content string
	at      string // the line and column of our message, and its beginning
}

// limitOf returns a file with one descriptor, whose keys follow.
func limitOf(keys string) string { return "domain: DOMAIN\ndescriptors:\n  - key: a\n" + keys }

// brokenRules has a file for each message of the loader of envoyproxy/ratelimit. DOMAIN is another one in each file.
var brokenRules = []brokenRule{
	{"descriptor has empty key", "domain: DOMAIN\ndescriptors:\n  - value: x\n", "3:5: error: descriptor has empty key"},
	{"descriptor has empty key", "domain: DOMAIN\ndescriptors:\n  - key: \"\"\n", "3:5: error: descriptor has empty key"},
	{"duplicate descriptor composite key 'd.a_b'",
		"domain: DOMAIN\ndescriptors:\n  - {key: a, value: b}\n  - {key: a, value: b}\n",
		"4:5: error: duplicate descriptor composite key"},
	{"invalid rate limit unit 'fortnight'", limitOf("    rate_limit: {unit: fortnight, requests_per_unit: 1}\n"),
		"4:24: error: `unit` cannot be `fortnight`"},
	{"invalid rate limit unit ''", limitOf("    rate_limit: {requests_per_unit: 1}\n"),
		"4:5: error: a rate limit without `unit`"},
	{"should not specify rate limit unit when unlimited", limitOf("    rate_limit: {unlimited: true, unit: hour}\n"),
		"4:35: error: should not specify `unit` when unlimited"},
	{"should not have an empty replaces entry",
		limitOf("    rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: \"\"}]}\n"),
		"4:63: error: should not have an empty replaces entry"},
	{"replaces should not contain name of same descriptor",
		limitOf("    rate_limit: {name: x, unit: hour, requests_per_unit: 1, replaces: [{name: x}]}\n"),
		"4:79: error: replaces should not contain name of same descriptor"},
	{"share_threshold can only be used with wildcard values", limitOf("    value: b\n    share_threshold: true\n"),
		"5:5: error: share_threshold can only be used with wildcard values"},
	{"config file cannot have empty domain", "descriptors: [{key: a}]\n",
		"1:1: error: config file cannot have empty domain"},
	{"config file cannot have empty domain", "domain: \"\"\n", "1:9: error: config file cannot have empty domain"},
	{"config file cannot have empty domain", "", " error: config file cannot have empty domain"},
	{"duplicate domain 'shop' in config file", "domain: shop\ndescriptors: [{key: a}]\n",
		"1:9: error: duplicate domain `shop` in config file"},
	{"config error, unknown key 'ratelimit'", limitOf("    ratelimit: {unit: hour}\n"),
		"4:5: error: unknown key `ratelimit` in a descriptor"},
	{"config error, key is not of type string: 5", limitOf("    5: b\n"), "4:5: error: unknown key `5` in a descriptor"},
	{"config error, yaml file contains list of type other than map: a", "domain: DOMAIN\ndescriptors: [a]\n",
		"2:15: error: a descriptor is a map, not a single value"},
	{"error checking config", limitOf("    rate_limit: {unit: hour, requests_per_unit: 1.5}\n"),
		"4:49: error: `requests_per_unit` is a whole number, not `1.5`"},
	{"cannot unmarshal !!int `-1` into uint32", limitOf("    rate_limit: {unit: hour, requests_per_unit: -1}\n"),
		"4:49: error: `requests_per_unit` cannot be `-1`"},
	{"cannot unmarshal !!int `4294967296` into uint32",
		limitOf("    rate_limit: {unit: hour, requests_per_unit: 4294967296}\n"),
		"4:49: error: 4294967296 requests cannot be counted exactly"},
	{"error loading config file: yaml: line 3", "domain: DOMAIN\ndescriptors: [\n", "3:1: error: not YAML"},
	{"error loading config file: yaml: line 3: found character that cannot start any token",
		"domain: DOMAIN\ndescriptors:\n\t- key: a\n", "3:1: error: not YAML: indented with a tab"},
	{"cannot unmarshal !!seq into config.YamlRoot", "- domain: DOMAIN\n", "1:1: error: a rule file is a map, not a list"},
	{"none: the limit is ignored", limitOf("    unit: hour\n    requests_per_unit: 1\n"),
		"4:5: error: `unit` does not belong in a descriptor"},
	{"none: the rule is enforced", limitOf("    rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true}\n"),
		"4:52: error: `shadow_mode` does not belong in a rate limit"},
}

const goodRules = "domain: shop\n" +
	"descriptors: [{key: action, value: buy, rate_limit: {unit: year, requests_per_unit: 0}}]\n"

// write writes the file with a domain into a directory, in one step.
func (b brokenRule) write(t *testing.T, dir, name, domain string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(dir), name+".next")
	content := []byte(strings.ReplaceAll(b.content, "DOMAIN", domain))
	earlier := time.Now().Add(-time.Second) // the file is complete before it is renamed
	if err := errors.Join(os.WriteFile(next, content, 0o600), os.Chtimes(next, earlier, earlier),
		os.Rename(next, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

// TestAllBrokenRulesAtTheStart starts with all broken files at once. The program names every mistake with its position
// and ends with exit code 1. FORCE_START_WITHOUT_INITIAL_CONFIG=true starts it.
func TestAllBrokenRulesAtTheStart(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "config")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(goodRules), 0o600),
		os.Symlink(program, filepath.Join(root, "ratelimit"))); err != nil {
		t.Fatal(err)
	}
	for i, b := range brokenRules {
		b.write(t, dir, fmt.Sprintf("b%02d.yaml", i), fmt.Sprintf("domain%d", i))
	}
	env := configured(func(s *settings.Settings) { s.Rules.Root = root })
	for _, name := range []string{filepath.Join(root, "ratelimit"), program} {
		code, _, stderr := runBinary(t, name, env, "")
		if code != exitFailed {
			t.Errorf("%s: exit code %d, want %d", name, code, exitFailed)
		}
		for i, b := range brokenRules {
			if place := fmt.Sprintf("b%02d.yaml:%s", i, b.at); !strings.Contains(stderr, place) {
				t.Errorf("%s (%s): no %q in\n%s", name, b.theirs, place, stderr)
			}
		}
	}
	env.Rules.ForceStart = true
	_, httpAddr, debugAddr, out := start(t, env)
	if got := buys(t, httpAddr); got != http.StatusServiceUnavailable {
		t.Errorf("without rules: %d, want 503, so that failure_mode_deny of Envoy decides", got)
	}
	logged(t, out, ` verdict=undecided reason=undecided domain=shop error="no rate limit configuration loaded"`)
	_, shown := get(t, "http://"+debugAddr+"/rlconfig")
	if none := "# no rules yet, from " + dir + "\n"; !strings.HasPrefix(shown, none) ||
		!strings.Contains(shown, "b00.yaml:3:5: error: ") {
		t.Errorf("/rlconfig does not begin with %s or does not name the mistakes:\n%s", none, shown)
	}
}

// TestBrokenRulesOnReload writes each broken file beside the rules of a running service. The previous rules stay
// active, and /rlconfig names the mistake.
func TestBrokenRulesOnReload(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRoot(t)
	dir := filepath.Join(root, "config")
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(goodRules), 0o600); err != nil {
		t.Fatal(err)
	}
	_, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	for i, b := range brokenRules {
		b.write(t, dir, "z.yaml", fmt.Sprintf("domain%d", i))
		testenv.Eventually(t, func() error {
			_, shown := get(t, "http://"+debugAddr+"/rlconfig")
			if !strings.Contains(shown, "z.yaml:"+b.at) || !strings.Contains(shown, "shop.action_buy: ") {
				return errors.New(shown)
			}
			return nil
		}, b.theirs)
		if got := buys(t, httpAddr); got != http.StatusTooManyRequests {
			t.Errorf("%s: %d, want 429 by the previous rules", b.theirs, got)
		}
	}
	_, metrics := get(t, "http://"+debugAddr+"/metrics")
	_, refused, _ := strings.Cut(metrics, "\nratelimit_service_config_load_error ")
	if n, err := strconv.Atoi(strings.Fields(refused + " none")[0]); err != nil || n < 1 {
		t.Errorf("config_load_error: got %.10q, want 1 or more", refused)
	}
}

// buys returns the status of a request that goodRules deny.
func buys(t *testing.T, httpAddr string) int {
	t.Helper()
	res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(
		`{"domain":"shop","descriptors":[{"entries":[{"key":"action","value":"buy"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

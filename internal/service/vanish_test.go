package service

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestRulesThatVanishStayActive removes the rules of a running service in several ways. The rules stay active; log,
// metric and /rlconfig say why. When the rules come back, all is well again.
func TestRulesThatVanishStayActive(t *testing.T) {
	t.Parallel()
	did := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, reason string
		vanish       func(t *testing.T, dir string)
	}{
		{"the directory is removed", "the rule directory does not exist",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(dir)) }},
		{"the root of the directory is removed", "the rule directory does not exist",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(filepath.Dir(dir))) }},
		{"the directory is renamed", "the rule directory does not exist",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.Rename(dir, dir+".old")) }},
		{"the files are removed", "no rule files in this directory",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.Remove(filepath.Join(dir, "rules.yaml"))) }},
		{"an empty directory takes its place", "no rule files in this directory",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(dir), os.Mkdir(dir, 0o755)) }},
		{"a file takes its place", "not a directory",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) }},
		{"a link to nowhere takes its place", "the rule directory does not exist",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(dir), os.Symlink("nowhere", dir)) }},
		{"a link to itself takes its place", "too many levels of symbolic links",
			func(t *testing.T, dir string) { t.Helper(); did(t, os.RemoveAll(dir), os.Symlink(dir, dir)) }},
		{"a link to nowhere takes the place of a file", "no such file or directory",
			func(t *testing.T, dir string) {
				t.Helper()
				file := filepath.Join(dir, "rules.yaml")
				did(t, os.Remove(file), os.Symlink("nowhere", file))
			}},
		{"the file becomes empty", "", func(t *testing.T, dir string) {
			t.Helper()
			did(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), nil, 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := testenv.RulesRoot(t)
			dir := filepath.Join(root, "config")
			file := filepath.Join(dir, "rules.yaml")
			rules := []byte(goodRules)
			did(t, os.WriteFile(file, rules, 0o600))
			_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
			denies := func(step string) {
				t.Helper()
				if got := buys(t, httpAddr); got != http.StatusTooManyRequests {
					t.Errorf("%s: %d, want 429", step, got)
				}
			}
			active := func(want int) {
				t.Helper()
				testenv.Eventually(t, func() error {
					_, metrics := get(t, "http://"+debugAddr+"/metrics")
					if line := fmt.Sprintf("\nextauthz_config_last_reload_successful %d\n", want); !strings.Contains(metrics, line) {
						return errors.New("no" + line + out.String())
					}
					return nil
				}, "the metric of the last reload")
			}
			denies("before")
			c.vanish(t, dir)
			active(0)
			denies("after")
			if _, shown := get(t, "http://"+debugAddr+"/rlconfig"); !strings.Contains(shown, "shop.action_buy: ") ||
				!strings.Contains(shown, "newer rules are refused") || !strings.Contains(shown, c.reason) {
				t.Errorf("/rlconfig has no %q:\n%s", c.reason, shown)
			}
			if _, health := get(t, "http://"+httpAddr+"/healthcheck"); health != "OK\n" {
				t.Errorf("/healthcheck: %s", health)
			}
			logged(t, out, "rules refused; the previous rules stay active")
			did(t, os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.WriteFile(file, rules, 0o600))
			active(1)
			denies("when they are back")
		})
	}
}

// TestStartWithoutRules starts with an empty rule directory, as envoyproxy/ratelimit does: no request is limited until
// there are rules. Health then depends on HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED.
func TestStartWithoutRules(t *testing.T) {
	t.Parallel()
	for required, unready := range map[bool]int{true: http.StatusInternalServerError, false: http.StatusOK} {
		t.Run(fmt.Sprint(required), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, "config")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
				s.Rules.Root = root
				s.Process.HealthyConfigs = required
			}))
			if code, body := get(t, "http://"+httpAddr+"/healthcheck"); code != unready {
				t.Errorf("/healthcheck: %d %s, want %d", code, body, unready)
			}
			res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(rls.Example))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("/json: %s, want 200", res.Status)
			}
			if got := checkAs(t, httpAddr, ""); got != http.StatusForbidden {
				t.Errorf("/check: %d, want 403: no policy allows the request", got)
			}
			if !strings.Contains(out.String(), "no rule files in this directory") {
				t.Errorf("the log does not say that there are no rules:\n%s", out)
			}
			rules := []byte("domain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
			if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() error {
				code, _ := get(t, "http://"+httpAddr+"/healthcheck")
				_, shown := get(t, "http://"+debugAddr+"/rlconfig")
				if code != http.StatusOK || !strings.Contains(shown, "shop.a") {
					return fmt.Errorf("%d, %s", code, shown)
				}
				return nil
			}, "the rules to become active")
		})
	}
}

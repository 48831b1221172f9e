package settings

import (
	_ "embed"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

//go:embed testdata/ratelimit-settings.txt
var ratelimitSettings string

// otherDefaults are the settings whose defaults differ from those of envoyproxy/ratelimit. docs/compatibility.md has a
// row for each.
var otherDefaults = []string{"BACKEND_TYPE", "DEBUG_HOST", "REDIS_SOCKET_TYPE", "REDIS_TIMEOUT", "REDIS_URL",
	"REDIS_PERSECOND_SOCKET_TYPE", "REDIS_PERSECOND_TIMEOUT", "REDIS_PERSECOND_URL"}

// TestSettingsOfEnvoyproxyRatelimit goes through all settings of envoyproxy/ratelimit. Each is read with its default,
// or has no effect for a reason that the log shows, or stops the start with a remedy.
func TestSettingsOfEnvoyproxyRatelimit(t *testing.T) {
	ours := map[string]Setting{}
	for _, s := range List() {
		ours[s.Name] = s
	}
	page, _, _ := strings.Cut(testenv.RepoFile(t, "docs/compatibility.md"), "<!-- generated")
	different := map[string]bool{}
	for _, name := range otherDefaults {
		different[name] = true
	}
	theirs := settingsOfRatelimit()
	for _, their := range theirs {
		name, byDefault := their.Name, their.Default
		setting, read := ours[name]
		_, ignored := WithoutEffect[name]
		switch {
		case !read && !ignored:
			t.Errorf("%s is neither read nor ignored for a reason", name)
		case read && ignored:
			t.Errorf("%s is read, and is also one of those without effect", name)
		case !read:
			continue
		}
		same := sameDefault(setting.Default, byDefault)
		if same == different[name] {
			t.Errorf("%s has the default %q, envoyproxy/ratelimit %q; in otherDefaults: %t", name, setting.Default, byDefault,
				different[name])
		}
		if !same && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/compatibility.md has no row for the default of %s", name)
		}
	}
	const all = 115
	if len(theirs) != all {
		t.Errorf("the list has %d settings, want %d", len(theirs), all)
	}
}

// settingsOfRatelimit returns the names and defaults of the settings of envoyproxy/ratelimit.
func settingsOfRatelimit() (list []Setting) {
	for line := range strings.Lines(ratelimitSettings) {
		if name, byDefault, found := strings.Cut(strings.TrimSpace(line), "="); found { // else it is the comment
			list = append(list, Setting{Name: name, Default: byDefault})
		}
	}
	return list
}

var update = flag.Bool("update", false, "write the table of docs/compatibility.md")

// TestReference compares the table of variables in docs/compatibility.md with the settings. `make reference` writes it.
func TestReference(t *testing.T) {
	ours := map[string]Setting{}
	for _, s := range List() {
		ours[s.Name] = s
	}
	var b strings.Builder
	b.WriteString("| its variables, with their defaults | here |\n|---|---|\n")
	for _, their := range settingsOfRatelimit() {
		here := "no effect: " + WithoutEffect[their.Name]
		if s, read := ours[their.Name]; read && sameDefault(s.Default, their.Default) {
			here = "the same default"
		} else if read {
			here = fmt.Sprintf("`%s=%s`", their.Name, s.Default)
		}
		fmt.Fprintf(&b, "| `%s=%s` | %s |\n", their.Name, their.Default, here)
	}
	testenv.CheckPage(t, "docs/compatibility.md", b.String(), *update)
}

// sameDefault compares defaults. 0 and 0s are the same duration.
func sameDefault(a, b string) bool {
	if a == b {
		return true
	}
	one, errOne := time.ParseDuration(a)
	two, errTwo := time.ParseDuration(b)
	return errOne == nil && errTwo == nil && one == two
}

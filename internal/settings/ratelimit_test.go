package settings

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

//go:embed testdata/ratelimit-settings.txt
var ratelimitSettings string

// otherDefaults are the settings whose defaults differ from those of envoyproxy/ratelimit.
// docs/reference/compatibility.md has a row for each.
var otherDefaults = []string{"BACKEND_TYPE", "DEBUG_HOST", "REDIS_SOCKET_TYPE", "REDIS_TIMEOUT", "REDIS_URL",
	"REDIS_PERSECOND_SOCKET_TYPE", "REDIS_PERSECOND_TIMEOUT", "REDIS_PERSECOND_URL"}

// TestSettingsOfEnvoyproxyRatelimit goes through all settings of envoyproxy/ratelimit. Each is read with its default,
// or has no effect for a reason that the log shows, or stops the start with a remedy.
func TestSettingsOfEnvoyproxyRatelimit(t *testing.T) {
	ours := map[string]Setting{}
	for _, s := range List() {
		ours[s.Name] = s
	}
	page, _, _ := strings.Cut(testenv.RepoFile(t, "docs/reference/compatibility.md"), "<!-- generated")
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
			t.Errorf("docs/reference/compatibility.md has no row for the default of %s", name)
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

var update = flag.Bool("update", false, "write the variables in docs/reference/compatibility.md")

// TestReference compares the variables in docs/reference/compatibility.md with the settings. `make reference` writes
// them.
func TestReference(t *testing.T) {
	ours := map[string]Setting{}
	for _, s := range List() {
		ours[s.Name] = s
	}
	var same []string
	var others strings.Builder
	ignored := map[string][]string{} // names by reason
	for _, their := range settingsOfRatelimit() {
		s, read := ours[their.Name]
		switch {
		case !read:
			why := WithoutEffect[their.Name]
			ignored[why] = append(ignored[why], "`"+their.Name+"`")
		case sameDefault(s.Default, their.Default):
			same = append(same, "`"+their.Name+"`")
		default:
			ofOurs := s.Default
			if m := derived.FindStringSubmatch(s.Meaning); ofOurs == "" && m != nil {
				ofOurs = m[1]
			}
			fmt.Fprintf(&others, "| `%s=%s` | %s |\n", their.Name, their.Default, coded(ofOurs))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "These %d are read, with the same default:\n\n%s\n\n", len(same), strings.Join(same, ", "))
	fmt.Fprintf(&b, "These are read, with another default:\n\n| there | here |\n|---|---|\n%s\n", &others)
	b.WriteString("These have no effect:\n\n| variables | reason |\n|---|---|\n")
	for _, why := range slices.Sorted(maps.Keys(ignored)) {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(ignored[why], ", "), why)
	}
	testenv.CheckPage(t, "docs/reference/compatibility.md", b.String(), *update)
}

// derived matches the default in the meaning of a setting whose default depends on others.
var derived = regexp.MustCompile(`; default: ([^;]*)`)

// coded returns a default as the page shows it.
func coded(value string) string {
	if value == "" {
		return "none"
	}
	return "`" + value + "`"
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

// Package compose holds what docker-compose.yml mounts. What it comes to when it runs, scripts/test-compose and test/e2e show.
package compose

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestEnvoy compares the Envoy of docker-compose.yml with the one that is explained and copied. Where they may differ is
// listed here; all else is the same.
func TestEnvoy(t *testing.T) {
	ours, sample := testenv.RepoFile(t, "deploy/compose/envoy/envoy.yaml"), testenv.RepoFile(t, "envoy/envoy.yaml")
	if err := testenv.ValidateEnvoy(t, ours); err != nil {
		t.Error(err)
	}
	mayDiffer := map[string]*regexp.Regexp{
		"a container listens on all of its addresses": regexp.MustCompile(`^(static_resources\.listeners\[0]|admin)\.address\.socket_address\.address$`),
		"the demo has one route":                      regexp.MustCompile(`\.route_config\.`),
		"the demo has a domain of its own":            regexp.MustCompile(`\.http_filters\[1]\.typed_config\.domain$`),
		"containers have names":                       regexp.MustCompile(`\.clusters\[\d]\.load_assignment\..*\.socket_address\.address$`),
		"which change their addresses":                regexp.MustCompile(`\.clusters\[\d]\.(type$|cluster_type\.)`),
	}
	got, want := leaves(t, ours), leaves(t, sample)
	for why, places := range mayDiffer {
		if cmp.Equal(take(got, places), take(want, places)) {
			t.Errorf("the two differ no more where %s (%s): take it off the list", why, places)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deploy/compose/envoy/envoy.yaml differs from envoy/envoy.yaml where it should not (-envoy/envoy.yaml +ours):\n%s", diff)
	}
}

// leaves are the scalars of a YAML document by their paths, as in admin.address.socket_address.port_value.
func leaves(t *testing.T, document string) map[string]any {
	t.Helper()
	var root any
	if err := yaml.Unmarshal([]byte(document), &root); err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, v := range value {
				walk(strings.TrimPrefix(path+"."+key, "."), v)
			}
			if len(value) == 0 {
				found[path] = value
			}
		case []any:
			for i, v := range value {
				walk(fmt.Sprintf("%s[%d]", path, i), v)
			}
		default:
			found[path] = value
		}
	}
	walk("", root)
	return found
}

// take removes the leaves at these places, and returns them.
func take(leaves map[string]any, places *regexp.Regexp) map[string]any {
	taken := map[string]any{}
	for path, value := range leaves {
		if places.MatchString(path) {
			taken[path] = value
			delete(leaves, path)
		}
	}
	return taken
}

// TestVariables holds .env against what docker-compose.yml reads: a variable that is missing or has a misspelt name is an error
// there, and one that nobody reads is a mistake.
func TestVariables(t *testing.T) {
	var asked, set []string
	for _, m := range regexp.MustCompile(`\$\{?(\w+)([^}]*)\}?`).FindAllStringSubmatch(testenv.RepoFile(t, "docker-compose.yml"), -1) {
		asked = append(asked, m[1])
		if want := ":?set " + m[1] + " in .env"; m[2] != want {
			t.Errorf("docker-compose.yml: %s: want ${%s%s}, so that it is missed by its name", m[0], m[1], want)
		}
	}
	for line := range strings.Lines(testenv.RepoFile(t, ".env")) {
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set = append(set, name)
		}
	}
	slices.Sort(asked)
	slices.Sort(set)
	if diff := cmp.Diff(slices.Compact(asked), set); diff != "" {
		t.Errorf("what docker-compose.yml reads and what .env sets differ (-read +set):\n%s", diff)
	}
}

// TestServices holds what can be seen of the services without running them.
func TestServices(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image, Restart string
			ReadOnly       bool     `yaml:"read_only"`
			CapDrop        []string `yaml:"cap_drop"`
			SecurityOpt    []string `yaml:"security_opt"`
			Ports, Volumes []string
			Environment    map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(testenv.RepoFile(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, s := range file.Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.Restart == "" {
			t.Errorf("%s is not as locked up as the others: %+v", name, s)
		}
		if strings.Contains(s.Image, "EXTAUTHZ_IMAGE") && s.Environment["STRICT_ENVIRONMENT"] != "true" {
			t.Errorf("%s: want STRICT_ENVIRONMENT, or a misspelt setting is none", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to more than this machine", name, port)
			}
		}
		for _, volume := range s.Volumes {
			host, _, _ := strings.Cut(volume, ":")
			info, err := os.Stat(filepath.Join(testenv.RepoRoot(t), host))
			if err != nil {
				t.Errorf("%s: volume %s: %v", name, volume, err)
			} else if !info.IsDir() {
				t.Errorf("%s: volume %s is a file: the container would go on seeing the old one after an edit", name, volume)
			}
			if !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s: volume %s can be written", name, volume)
			}
		}
	}
	if len(file.Services) == 0 {
		t.Error("docker-compose.yml has no services")
	}
	for line := range strings.Lines(testenv.RepoFile(t, ".env")) {
		name, image, ok := strings.Cut(strings.TrimSpace(line), "=")
		if _, tag, tagged := strings.Cut(image, ":"); ok && strings.HasSuffix(name, "_IMAGE") && (!tagged || tag == "latest") {
			t.Errorf(".env: %s=%s: want a version, since what has none is another image tomorrow", name, image)
		}
	}
}

// TestNetworks: the application reaches nothing but Envoy, and Redis nothing but extauthz.
func TestNetworks(t *testing.T) {
	var file struct {
		Services map[string]struct{ Networks []string }
		Networks map[string]struct{ Internal bool }
	}
	if err := yaml.Unmarshal([]byte(testenv.RepoFile(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"upstream": {"envoy"}, "redis": {"extauthz"}} {
		var got []string
		for other, s := range file.Services {
			shared := slices.ContainsFunc(s.Networks, func(n string) bool { return slices.Contains(file.Services[name].Networks, n) })
			if other != name && shared {
				got = append(got, other)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s shares a network with %q, want %q", name, got, want)
		}
	}
	if !file.Networks["buckets"].Internal {
		t.Error("a way leads out of the network buckets, on which Redis has no password")
	}
}

// TestOrder: whoever needs another starts when that one is healthy, by its own word.
func TestOrder(t *testing.T) {
	type service struct {
		DependsOn yaml.Node `yaml:"depends_on"` // a mapping, or a list
		Health    struct {
			Test []string
		} `yaml:"healthcheck"`
	}
	var file struct{ Services map[string]service }
	if err := yaml.Unmarshal([]byte(testenv.RepoFile(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"envoy": {"extauthz", "upstream"}, "extauthz": {"redis"}} {
		needs := map[string]struct{ Condition string }{}
		before := file.Services[name].DependsOn
		if err := before.Decode(&needs); err != nil {
			t.Errorf("%s: depends_on: %v", name, err)
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(needs))); diff != "" {
			t.Errorf("%s: what it needs (-want +got):\n%s", name, diff)
		}
		for other, n := range needs {
			if n.Condition != "service_healthy" || len(file.Services[other].Health.Test) == 0 {
				t.Errorf("%s needs %s when it is %q, which is healthy by %q; want service_healthy, by a test",
					name, other, n.Condition, file.Services[other].Health.Test)
			}
		}
	}
}

// Package compose tests docker-compose.yml and the files in this directory, which it mounts. scripts/test-compose and
// test/e2e test the running services.
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

	"github.com/extauthz/extauthz/test/testenv"
)

// TestEnvoy compares the Envoy of docker-compose.yml with envoy/envoy.yaml, the sample that users copy. The two may
// differ only at the places listed here.
func TestEnvoy(t *testing.T) {
	ours, sample := testenv.RepoFile(t, "deploy/compose/envoy/envoy.yaml"), testenv.RepoFile(t, "envoy/envoy.yaml")
	if err := testenv.ValidateEnvoy(t, ours); err != nil {
		t.Error(err)
	}
	mayDiffer := map[string]*regexp.Regexp{
		"a container listens on all of its addresses": regexp.MustCompile(
			`^(static_resources\.listeners\[0]|admin)\.address\.socket_address\.address$`),
		"the demo has one route":      regexp.MustCompile(`\.route_config\.`),
		"the demo has its own domain": regexp.MustCompile(`\.http_filters\[1]\.typed_config\.domain$`),
		"containers have names": regexp.MustCompile(
			`\.clusters\[\d]\.load_assignment\..*\.socket_address\.address$`),
		"addresses of a container may change": regexp.MustCompile(`\.clusters\[\d]\.(type$|cluster_type\.)`),
	}
	got, want := leaves(t, ours), leaves(t, sample)
	for why, places := range mayDiffer {
		if cmp.Equal(take(got, places), take(want, places)) {
			t.Errorf("the two no longer differ at %s (%s): remove the entry from the list", places, why)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deploy/compose/envoy/envoy.yaml has unlisted differences (-envoy/envoy.yaml +ours):\n%s", diff)
	}
}

// leaves returns the scalars of a YAML document by path, such as admin.address.socket_address.port_value.
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

// take removes the leaves whose paths match, and returns them.
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

// TestVariables compares .env with the variables that docker-compose.yml reads: none is missing and none is unused. In
// docker-compose.yml, each reference fails with a message if the variable is unset.
func TestVariables(t *testing.T) {
	var read, set []string
	reference := regexp.MustCompile(`\$\{?(\w+)([^}]*)\}?`)
	for _, m := range reference.FindAllStringSubmatch(testenv.RepoFile(t, "docker-compose.yml"), -1) {
		read = append(read, m[1])
		if want := ":?set " + m[1] + " in .env"; m[2] != want {
			t.Errorf("docker-compose.yml: %s: want ${%s%s}, so that the error names a missing variable", m[0], m[1], want)
		}
	}
	for line := range strings.Lines(testenv.RepoFile(t, ".env")) {
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set = append(set, name)
		}
	}
	slices.Sort(read)
	slices.Sort(set)
	if diff := cmp.Diff(slices.Compact(read), set); diff != "" {
		t.Errorf("docker-compose.yml reads other variables than .env sets (-read +set):\n%s", diff)
	}
}

// TestServices checks the hardening, ports, volumes and image versions of the services without running them.
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
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.Restart == "" {
			t.Errorf("%s is less restricted than the other services: %+v", name, s)
		}
		if strings.Contains(s.Image, "EXTAUTHZ_IMAGE") && s.Environment["STRICT_ENVIRONMENT"] != "true" {
			t.Errorf("%s: want STRICT_ENVIRONMENT: without it, a misspelt setting is ignored", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to other machines", name, port)
			}
		}
		for _, volume := range s.Volumes {
			host, _, _ := strings.Cut(volume, ":")
			info, err := os.Stat(filepath.Join(testenv.RepoRoot(t), host))
			if err != nil {
				t.Errorf("%s: volume %s: %v", name, volume, err)
			} else if !info.IsDir() {
				t.Errorf("%s: volume %s is a file: after an edit, the container would still read the old file", name, volume)
			}
			if !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s: volume %s is writable", name, volume)
			}
		}
	}
	if len(file.Services) == 0 {
		t.Error("docker-compose.yml has no services")
	}
	for line := range strings.Lines(testenv.RepoFile(t, ".env")) {
		name, image, ok := strings.Cut(strings.TrimSpace(line), "=")
		_, tag, tagged := strings.Cut(image, ":")
		if ok && strings.HasSuffix(name, "_IMAGE") && (!tagged || tag == "latest") {
			t.Errorf(".env: %s=%s: want a version: without it, the image changes over time", name, image)
		}
	}
}

// TestNetworks checks that the application shares networks only with Envoy, and Redis only with extauthz.
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
			shared := slices.ContainsFunc(s.Networks, func(network string) bool {
				return slices.Contains(file.Services[name].Networks, network)
			})
			if other != name && shared {
				got = append(got, other)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s shares a network with %q, want %q", name, got, want)
		}
	}
	if !file.Networks["buckets"].Internal {
		t.Error("the network buckets is not internal: Redis has no password, so other hosts must not reach it")
	}
}

// TestOrder checks that a service starts only after the services it needs are healthy, and that those have a health
// check.
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
			t.Errorf("%s: depends_on (-want +got):\n%s", name, diff)
		}
		for other, n := range needs {
			if n.Condition != "service_healthy" || len(file.Services[other].Health.Test) == 0 {
				t.Errorf("%s depends on %s with condition %q and health check %q; want service_healthy and a health check",
					name, other, n.Condition, file.Services[other].Health.Test)
			}
		}
	}
}

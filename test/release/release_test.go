// Package release tests the configuration of a release. It reads .goreleaser.yaml with goreleaser's own code, and
// builds the binaries from a clone with a tag.
package release

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const root = "../.."

// project loads .goreleaser.yaml. An unknown key is an error.
func project(t *testing.T) config.Project {
	t.Helper()
	p, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a program in a directory and returns what it prints to stdout.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, &stderr)
	}
	return string(out)
}

const tag = "v0.98.7"

// clone clones the committed state and adds a tag, as for a release.
func clone(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "clone")
	run(t, root, nil, "git", "clone", "--quiet", "--no-hardlinks", ".", dir)
	run(t, dir, nil, "git", "tag", tag)
	return dir
}

// build builds a binary for a platform as goreleaser does, and returns its path.
func build(t *testing.T, b config.Build, dir, goos, goarch string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), b.Binary)
	args := append([]string{"build"}, b.Flags...)
	args = append(args, "-tags="+strings.Join(b.Tags, ","), "-ldflags="+strings.Join(b.Ldflags, " "), "-o", path, b.Main)
	run(t, dir, append([]string{"GOOS=" + goos, "GOARCH=" + goarch}, b.Env...), "go", args...)
	return path
}

// maxBinary is above the size of both programs. extauthz has 36 MB, 0.2 of them for networks: html/template calls
// methods by name, so the linker keeps every method of every type. Its
// escaping by context is safer than one by hand.
const maxBinary = 37_000_000

// TestBinaries builds both programs for every platform. Those for this platform print the tag and the commit.
func TestBinaries(t *testing.T) {
	dir := clone(t)
	var programs []string
	for _, b := range project(t).Builds {
		programs = append(programs, b.Binary)
		t.Run(b.Binary, func(t *testing.T) { checkBinaries(t, dir, b) })
	}
	if want := []string{"extauthz", "extauthz-tools"}; !slices.Equal(programs, want) {
		t.Errorf("programs %q, want %q", programs, want)
	}
}

func checkBinaries(t *testing.T, dir string, b config.Build) {
	var built []string
	for _, goos := range b.Goos {
		for _, goarch := range b.Goarch {
			path := build(t, b, dir, goos, goarch)
			built = append(built, goos+"/"+goarch)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > maxBinary {
				t.Errorf("%s/%s has %d bytes, want %d at most", goos, goarch, info.Size(), maxBinary)
			}
			if goos != runtime.GOOS || goarch != runtime.GOARCH {
				continue
			}
			var printed struct {
				Version, Commit, Date, Platform string
				Modified                        bool
			}
			if err := json.Unmarshal([]byte(run(t, dir, nil, path, "version", "-o", "json")), &printed); err != nil {
				t.Fatal(err)
			}
			commit := strings.TrimSpace(run(t, dir, nil, "git", "rev-parse", "HEAD"))
			if printed.Version != tag || printed.Commit != commit || printed.Date == "" || printed.Modified ||
				printed.Platform != goos+"/"+goarch {
				t.Errorf("the binary prints %+v, want %s of commit %s with its date, not modified", printed, tag, commit)
			}
		}
	}
	want := []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
	if !slices.Equal(built, want) {
		t.Errorf("built for %q, want %q", built, want)
	}
}

// TestReproducible builds from two clones in two directories and compares the bytes.
func TestReproducible(t *testing.T) {
	clones := [2]string{clone(t), clone(t)}
	for _, b := range project(t).Builds {
		var sums [2][sha256.Size]byte
		for i, dir := range clones {
			binary, err := os.ReadFile(build(t, b, dir, "linux", "amd64"))
			if err != nil {
				t.Fatal(err)
			}
			sums[i] = sha256.Sum256(binary)
		}
		if sums[0] != sums[1] {
			t.Errorf("two builds of %s of one commit differ: %x and %x", b.Binary, sums[0], sums[1])
		}
	}
}

// TestArchives checks that the files of an archive exist, and that there are checksums and a bill of materials.
func TestArchives(t *testing.T) {
	p := project(t)
	if len(p.Archives) != 1 {
		t.Fatalf("%d kinds of archives, want 1", len(p.Archives))
	}
	if ids := p.Archives[0].IDs; len(ids) > 0 {
		t.Errorf("the archives have only %q, want all programs", ids)
	}
	var sources []string
	for _, file := range p.Archives[0].Files {
		sources = append(sources, file.Source)
		if _, err := os.Stat(filepath.Join(root, file.Source)); err != nil {
			t.Error(err)
		}
		if file.Info.MTime == "" {
			t.Errorf("%s has the time of the checkout, which differs between builds: want info.mtime", file.Source)
		}
	}
	for _, want := range []string{"LICENSE", "README.md"} {
		if !slices.Contains(sources, want) {
			t.Errorf("no %s in the archive, only %q", want, sources)
		}
	}
	if p.Checksum.Disable || len(p.SBOMs) != 1 || p.SBOMs[0].Artifacts != "archive" {
		t.Errorf("want checksums and a bill of materials for each archive: %+v, %+v", p.Checksum, p.SBOMs)
	}
}

// TestSameBuildEverywhere checks that make build, the image and a release use the same flags, so that tests of one
// also apply to the others. The image is built without the tools.
func TestSameBuildEverywhere(t *testing.T) {
	b := project(t).Builds[0]
	for _, name := range []string{"Makefile", "Dockerfile"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		_, command, found := strings.Cut(strings.ReplaceAll(string(content), "\\\n", ""), "go build ")
		command, _, ends := strings.Cut(command, "./cmd/extauthz")
		if !found || !ends {
			t.Fatalf("%s does not build ./cmd/extauthz", name)
		}
		for _, want := range []string{"-trimpath", "-tags=" + strings.Join(b.Tags, ","), strings.Join(b.Ldflags, " ")} {
			if !strings.Contains(command, want) {
				t.Errorf("%s builds without the %s of .goreleaser.yaml: go build %s", name, want, command)
			}
		}
		if !strings.Contains(string(content), "CGO_ENABLED=0 go build") {
			t.Errorf("%s builds with cgo", name)
		}
	}
	for _, name := range []string{"Dockerfile", ".dockerignore"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || strings.Contains(string(content), "tools") {
			t.Errorf("%s names the tools: %v\n%s", name, err, content)
		}
	}
}

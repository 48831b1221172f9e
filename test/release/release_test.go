// Package release checks what a release would be: .goreleaser.yaml as goreleaser itself reads it, and the binaries that it
// describes, built from a clone with a tag.
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

// project loads .goreleaser.yaml; a key that goreleaser does not know is an error.
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

// clone makes a clone of what is committed, with a tag, as a release finds it.
func clone(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "clone")
	run(t, root, nil, "git", "clone", "--quiet", "--no-hardlinks", ".", dir)
	run(t, dir, nil, "git", "tag", tag)
	return dir
}

// build builds for one platform as goreleaser does, and returns the path of the binary.
func build(t *testing.T, b config.Build, dir, goos, goarch string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "extauthz")
	args := append([]string{"build"}, b.Flags...)
	args = append(args, "-tags="+strings.Join(b.Tags, ","), "-ldflags="+strings.Join(b.Ldflags, " "), "-o", path, b.Main)
	run(t, dir, append([]string{"GOOS=" + goos, "GOARCH=" + goarch}, b.Env...), "go", args...)
	return path
}

// maxBinary is well above the 18 MB of today, and well below the 28 MB of a program of which the linker has to keep every method
// of every type, because something reaches text/template or a method by a name that it makes up (see make build).
const maxBinary = 23_000_000

// TestBinaries: every platform is built, and what runs here says its tag and the commit.
func TestBinaries(t *testing.T) {
	dir := clone(t)
	p := project(t)
	if len(p.Builds) != 1 {
		t.Fatalf("%d builds, want 1", len(p.Builds))
	}
	b := p.Builds[0]
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
			var says struct {
				Version, Commit, Date, Platform string
				Modified                        bool
			}
			if err := json.Unmarshal([]byte(run(t, dir, nil, path, "version", "-o", "json")), &says); err != nil {
				t.Fatal(err)
			}
			commit := strings.TrimSpace(run(t, dir, nil, "git", "rev-parse", "HEAD"))
			if says.Version != tag || says.Commit != commit || says.Date == "" || says.Modified || says.Platform != goos+"/"+goarch {
				t.Errorf("the binary says %+v, want %s of commit %s with its date, not modified", says, tag, commit)
			}
		}
	}
	want := []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
	if !slices.Equal(built, want) {
		t.Errorf("built for %q, want %q", built, want)
	}
}

// TestReproducible: two clones in two places make the same bytes.
func TestReproducible(t *testing.T) {
	var sums [2][sha256.Size]byte
	for i := range sums {
		binary, err := os.ReadFile(build(t, project(t).Builds[0], clone(t), "linux", "amd64"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(binary)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds of one commit differ: %x and %x", sums[0], sums[1])
	}
}

// TestArchives: what is in an archive exists, and there are checksums and a bill of materials.
func TestArchives(t *testing.T) {
	p := project(t)
	if len(p.Archives) != 1 {
		t.Fatalf("%d kinds of archives, want 1", len(p.Archives))
	}
	var sources []string
	for _, file := range p.Archives[0].Files {
		sources = append(sources, file.Source)
		if _, err := os.Stat(filepath.Join(root, file.Source)); err != nil {
			t.Error(err)
		}
		if file.Info.MTime == "" {
			t.Errorf("%s has the time of the checkout, which differs from build to build: want info.mtime", file.Source)
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

// TestSameBuildEverywhere: make build, the image and a release are the same build, so that what one of them is tried with
// holds for the others.
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
}

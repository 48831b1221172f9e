package command

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestBuild(t *testing.T) {
	const commit, date = "351fc7a0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6", "2026-11-21T08:19:20Z"
	vcs := []debug.BuildSetting{
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"},
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: date},
		{Key: "vcs.modified", Value: "true"},
	}
	linked := Build{Version: "v0.5.0", Commit: commit, Date: date}
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		linked   Build
		want     Build
	}{
		"from a tag": {"v0.5.0", vcs, Build{}, Build{Version: "v0.5.0", Commit: commit, Date: date}},
		"with changes": {"v0.5.0+dirty", vcs, Build{}, Build{Version: "v0.5.0+dirty", Commit: commit, Date: date,
			Modified: true}},
		"go install":        {"v0.5.0", vcs[:2], Build{}, Build{Version: "v0.5.0"}},
		"no repository":     {"(devel)", vcs[:2], Build{}, Build{Version: "(devel)"}},
		"an image":          {"(devel)", vcs[:2], linked, linked},
		"an image, unknown": {"(devel)", vcs[:2], Build{Version: "(devel)"}, Build{Version: "(devel)"}},
		"an image, changed": {"(devel)", vcs[:2], Build{Version: "v0.5.0+dirty"},
			Build{Version: "v0.5.0+dirty", Modified: true}},
		"Go knows better":      {"v0.6.0", vcs, linked, Build{Version: "v0.6.0", Commit: commit, Date: date}},
		"Go knows very little": {"", vcs[:2], Build{}, Build{Version: "(devel)"}},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: c.version}, Settings: c.settings}
		c.want.Go, c.want.Platform = "go1.26.8", "linux/arm64"
		if diff := cmp.Diff(c.want, buildOf(info, c.linked)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	var stdout bytes.Buffer
	p := Program{Stdout: &stdout, Stderr: &stdout}
	if code := p.Run(p.Root(new(cobra.Command)), []string{"version", "-o", "json"}); code != ExitOK {
		t.Fatalf("exit code %d: %s", code, &stdout)
	}
	var got Build
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got != ThisBuild() || got.Go != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%s, want %+v", &stdout, ThisBuild())
	}
}

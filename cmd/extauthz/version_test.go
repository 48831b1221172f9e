package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuild(t *testing.T) {
	const commit, date = "351fc7a0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6", "2026-11-21T08:19:20Z"
	vcs := []debug.BuildSetting{
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"},
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: date},
		{Key: "vcs.modified", Value: "true"},
	}
	linked := build{Version: "v0.5.0", Commit: commit, Date: date}
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		linked   build
		want     build
	}{
		"from a tag": {"v0.5.0", vcs, build{}, build{Version: "v0.5.0", Commit: commit, Date: date}},
		"with changes": {"v0.5.0+dirty", vcs, build{}, build{Version: "v0.5.0+dirty", Commit: commit, Date: date,
			Modified: true}},
		"go install":        {"v0.5.0", vcs[:2], build{}, build{Version: "v0.5.0"}},
		"no repository":     {"(devel)", vcs[:2], build{}, build{Version: "(devel)"}},
		"an image":          {"(devel)", vcs[:2], linked, linked},
		"an image, unknown": {"(devel)", vcs[:2], build{Version: "(devel)"}, build{Version: "(devel)"}},
		"an image, changed": {"(devel)", vcs[:2], build{Version: "v0.5.0+dirty"},
			build{Version: "v0.5.0+dirty", Modified: true}},
		"Go knows better":      {"v0.6.0", vcs, linked, build{Version: "v0.6.0", Commit: commit, Date: date}},
		"Go knows very little": {"", vcs[:2], build{}, build{Version: "(devel)"}},
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
	if code := run(t, nil, "version -o json", "", &stdout, &stdout); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stdout)
	}
	var got build
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got != thisBuild() || got.Go != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%s, want %+v", &stdout, thisBuild())
	}
}

package zonedata_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/zonedata"
)

// TestSystemWins runs itself with zone data of its own in ZONEINFO, in which Europe/Berlin is Asia/Tokyo. The program
// uses it, although it links a copy of the zone data, and names its version.
func TestSystemWins(t *testing.T) {
	if os.Getenv("ZONEINFO") != "" {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := time.Unix(0, 0).In(berlin).Zone(); offset != 9*3600 {
			t.Errorf("Berlin is %d s ahead of UTC", offset)
		}
		if got, want := zonedata.Version(), "2030z ("+os.Getenv("ZONEINFO")+")"; got != want {
			t.Errorf("the version is %q, want %q", got, want)
		}
		if got := zonedata.Zones(); !slices.Equal(got, []string{"Europe/Berlin", "Europe/Bonn"}) {
			t.Errorf("the zones are %q", got)
		}
		return
	}
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	zones, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer zones.Close()
	tokyo, err := fs.ReadFile(zones, "Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Europe/Berlin": string(tokyo), "Etc/UTC": "", "tzdata.zi": "# version 2030z\nR r 2030 o - Ja 1 0 1 S\n" +
			"Z Europe/Berlin 9 - JST\nL Europe/Berlin Europe/Bonn\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSystemWins$")
	again.Env = append(os.Environ(), "ZONEINFO="+dir)
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVersion(t *testing.T) {
	version := zonedata.Version()
	if !strings.HasSuffix(version, "(/usr/share/zoneinfo)") && !strings.HasSuffix(version, "(time/tzdata)") {
		t.Errorf("the version is %q", version)
	}
	if strings.Contains(version, "zoneinfo") && !slices.Contains(zonedata.Zones(), "Europe/Berlin") {
		t.Errorf("%s has %d zones, without Europe/Berlin", version, len(zonedata.Zones()))
	}
}

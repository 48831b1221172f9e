// Package zonedata returns the version of the zone data that the program uses, and the zones in it. It links a copy of
// the zone data, which time.LoadLocation reads where the system has none.
package zonedata

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	_ "time/tzdata" // the copy
)

// directories are where time.LoadLocation looks for zone data, in this order, after the variable ZONEINFO.
var directories = []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}

// directory returns the directory of the system's zone data, "" for none.
func directory() string {
	for _, dir := range append([]string{os.Getenv("ZONEINFO")}, directories...) {
		if _, err := os.Stat(filepath.Join(dir, "Etc", "UTC")); dir != "" && err == nil {
			return dir
		}
	}
	return ""
}

// index returns the lines of the index of the zone data: its version, its rules, its zones and links to them.
func index() []string {
	text, _ := os.ReadFile(filepath.Join(cmp.Or(directory(), os.DevNull), "tzdata.zi"))
	return strings.Split(string(text), "\n")
}

// Version returns the version of the zone data, and where it comes from: 2026a (/usr/share/zoneinfo).
func Version() string {
	dir := directory()
	if dir == "" {
		return "of " + runtime.Version() + " (time/tzdata)"
	}
	version, found := strings.CutPrefix(index()[0], "# version ")
	if !found {
		version = "unknown"
	}
	return version + " (" + dir + ")"
}

// Zones returns the names of the zones of the system, none if the system has no index of them.
func Zones() (names []string) {
	for _, line := range index() {
		switch fields := strings.Fields(line); {
		case len(fields) > 2 && fields[0] == "Z":
			names = append(names, fields[1])
		case len(fields) == 3 && fields[0] == "L":
			names = append(names, fields[2])
		}
	}
	return names
}

package main

import (
	"fmt"
	"runtime/debug"
)

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "extauthz (unknown version)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = "commit " + s.Value[:min(12, len(s.Value))]
		}
	}
	return fmt.Sprintf("extauthz %s %s", v, info.GoVersion)
}

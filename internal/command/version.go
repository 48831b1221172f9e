package command

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The build of an image sets these variables (go build -ldflags="-X ..."), because Go finds no
// repository in the image. They are empty in all other builds. The linker can set only variables of a package.
var linkedVersion, linkedCommit, linkedDate string

// Build is the version of this program and what it was built from.
type Build struct {
	// Version is the tag, or Go's pseudo-version of the commit. With uncommitted changes it ends with +dirty.
	Version string `json:"version"`
	// Commit and Date (RFC 3339) are those of the commit, empty if unknown.
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ThisBuild returns what Go has recorded, and otherwise what the linker has set.
func ThisBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return buildOf(info, Build{Version: linkedVersion, Commit: linkedCommit, Date: linkedDate})
}

func buildOf(info *debug.BuildInfo, linked Build) Build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	const unknown = "(devel)" // Go's word for a build outside of a repository
	b := Build{
		Version:  cmp.Or(strings.TrimPrefix(info.Main.Version, unknown), linked.Version, unknown),
		Commit:   cmp.Or(settings["vcs.revision"], linked.Commit),
		Date:     cmp.Or(settings["vcs.time"], linked.Date),
		Go:       info.GoVersion,
		Platform: settings["GOOS"] + "/" + settings["GOARCH"],
	}
	b.Modified = strings.HasSuffix(b.Version, "+dirty")
	return b
}

func (p *Program) version(program string) *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go version",
		Example: "  " + program + " version -o json",
		Args:    NoArguments(""),
	}
	output := OutputFlag(c, "text", "json")
	c.RunE = func(*cobra.Command, []string) error { return p.printVersion(program, output.Word) }
	return c
}

func (p *Program) printVersion(program, format string) error {
	b := ThisBuild()
	if format == "json" {
		return PrintJSON(p.Stdout, b)
	}
	_, err := fmt.Fprintf(p.Stdout, "%s %s\ncommit   %s\ndate     %s\ngo       %s %s\n",
		program, b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "unknown"), b.Go, b.Platform)
	return err
}

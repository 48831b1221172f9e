package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

// What the build of an image says (go build -ldflags="-X main.linkedVersion=..."), since Go finds no repository in there to ask;
// empty in all other builds. The linker can set nothing but variables of a package.
var linkedVersion, linkedCommit, linkedDate string

// build says from what this program was made.
type build struct {
	// Version is the tag, or what Go makes of the commit when there is none; +dirty at its end: there were changes besides.
	Version string `json:"version"`
	// Commit and Date, when that was made (RFC 3339), are empty where they are not known.
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild is what Go knows, and what it does not know from the linker.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return buildOf(info, build{Version: linkedVersion, Commit: linkedCommit, Date: linkedDate})
}

func buildOf(info *debug.BuildInfo, linked build) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	const unknown = "(devel)" // Go's word for a build outside of a repository
	known := info.Main.Version
	if known == unknown {
		known = ""
	}
	b := build{
		Version:  cmp.Or(known, linked.Version, unknown),
		Commit:   cmp.Or(settings["vcs.revision"], linked.Commit),
		Date:     cmp.Or(settings["vcs.time"], linked.Date),
		Go:       info.GoVersion,
		Platform: settings["GOOS"] + "/" + settings["GOARCH"],
	}
	b.Modified = strings.HasSuffix(b.Version, "+dirty")
	return b
}

// printVersion runs the subcommand version.
func printVersion(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("version", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error is enough
	form := f.String("o", "text", "")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("takes no arguments, not %q", strings.Join(f.Args(), " "))
	case err == nil && *form != "text" && *form != "json":
		err = fmt.Errorf("-o %q: want text or json", *form)
	}
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: version: %v\n", err)
		return exitNoStart
	}
	b := thisBuild()
	if *form == "json" {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(b) // what the terminal does not take is lost anyway
		return exitOK
	}
	fmt.Fprintf(stdout, "extauthz %s\ncommit   %s\ndate     %s\ngo       %s %s\n",
		b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "unknown"), b.Go, b.Platform)
	return exitOK
}

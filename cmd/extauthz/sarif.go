package main

import (
	"cmp"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

// sarif is a part of a SARIF 2.1.0 log, which code scanning shows beside the lines of files.
type sarif = map[string]any

// sarifLog returns problems as a SARIF log.
func sarifLog(problems strictyaml.Problems) sarif {
	var kinds []sarif
	for _, k := range doctor.Kinds() {
		help := sarif{"text": strings.Join(k.Remedy, "\n")}
		kinds = append(kinds, sarif{"id": k.ID, "shortDescription": sarif{"text": k.Text}, "help": help})
	}
	results := []sarif{}
	for _, p := range problems {
		at := sarif{"artifactLocation": sarif{"uri": fileURI(p.File)}}
		if p.Line > 0 {
			at["region"] = sarif{"startLine": p.Line, "startColumn": p.Column, "endColumn": p.Column + max(p.Length, 1)}
		}
		results = append(results, sarif{
			"ruleId":    cmp.Or(p.ID, doctor.Kinds()[0].ID),
			"level":     p.Warning,
			"message":   sarif{"text": strings.Join(append([]string{p.Message}, p.Hints...), "\n")},
			"locations": []sarif{{"physicalLocation": at}},
		})
	}
	return sarif{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []sarif{{
			"tool": sarif{"driver": sarif{
				"name": "extauthz", "version": command.ThisBuild().Version,
				"informationUri": "https://github.com/extauthz/extauthz",
				"rules":          kinds,
			}},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	}
}

// fileURI returns the URI of a path. The URI of a relative path is relative.
func fileURI(path string) string {
	if strings.Contains(path, "://") {
		return path // of a running system
	}
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}

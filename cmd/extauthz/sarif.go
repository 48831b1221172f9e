package main

import (
	"net/url"
	"path/filepath"
	"strings"
)

// The parts of a SARIF 2.1.0 log that a check fills in: what code scanning shows beside the line of a file.
type (
	sarif struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"` // nil for the whole file
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndColumn   int `json:"endColumn"`
	}
)

// sarifLog returns problems as a SARIF log.
func sarifLog(problems []problem) sarif {
	const rule = "extauthz-check"
	results := []sarifResult{}
	for _, p := range problems {
		at := sarifPhysical{Artifact: sarifArtifact{fileURI(p.File)}}
		if p.Line > 0 {
			at.Region = &sarifRegion{p.Line, p.Column, p.Column + max(p.Length, 1)}
		}
		text := strings.Join(append([]string{p.Message}, p.Hints...), "\n")
		results = append(results, sarifResult{rule, p.Severity, sarifText{text}, []sarifLocation{{at}}})
	}
	return sarif{
		Schema:  "https://json.schemastore.org/sarif-2.1.0.json",
		Version: "2.1.0",
		Runs: []sarifRun{{
			Tool: sarifTool{sarifDriver{
				Name: "extauthz", Version: thisBuild().Version, InformationURI: "https://github.com/extauthz/extauthz",
				Rules: []sarifRule{{rule, sarifText{"A mistake in a rule file, or in a configuration of Envoy that uses it"}}},
			}},
			ColumnKind: "unicodeCodePoints",
			Results:    results,
		}},
	}
}

// fileURI returns the URI of a path; that of a relative one is relative.
func fileURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}

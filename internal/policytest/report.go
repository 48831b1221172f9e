package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Paint returns a text in a color of the terminal: 31 is red, 32 green, 33 yellow.
type Paint func(text string, color int) string

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer, paint Paint) {
	for _, s := range r.Files {
		requests, failed := 0, 0
		for _, t := range s.Tests {
			requests += t.Requests
			if !t.OK {
				failed++
				fmt.Fprintf(w, "%s %s:%d: %s\n", paint("FAIL", 31), s.File, t.Line, printable(t.Name))
			}
			for i := range t.Failures {
				t.Failures[i].write(w)
			}
		}
		if reason := s.reason(); reason != "" {
			fmt.Fprintf(w, "%s %s\n%s\n", paint("FAIL", 31), s.File, reason)
			continue
		}
		word, of := paint("ok", 32)+"  ", ""
		if failed > 0 {
			word, of = paint("FAIL", 31), fmt.Sprintf("%d of ", failed)
		}
		fmt.Fprintf(w, "%s %s: %s%s, %s\n", word, s.File, of, suggest.Counted(len(s.Tests), "test"),
			suggest.Counted(requests, "request"))
	}
	r.Coverage.write(w, paint)
}

// printable returns a text without characters that could change the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// reason returns why a file could not be run, "" if it could.
func (s *Suite) reason() string {
	if s.problems.HasErrors() {
		return s.problems.Error()
	}
	return s.Error
}

func (f *Failure) write(w io.Writer) {
	fmt.Fprintf(w, "%5d | %s\n", f.Line, printable(f.Text))
	if f.Request > 1 {
		fmt.Fprintf(w, "      repetition %d\n", f.Request)
	}
	fmt.Fprintf(w, "      want %s\n      got  %s\n", printable(f.Want), printable(f.Got))
	for line := range strings.Lines(f.Explanation) {
		fmt.Fprintf(w, "        %s\n", printable(strings.TrimSuffix(line, "\n")))
	}
}

func (c *Coverage) write(w io.Writer, paint Paint) {
	if len(c.Rules) == 0 {
		return
	}
	fmt.Fprintf(w, "coverage: %d of %s (%d %%)\n", c.Hit, suggest.Counted(len(c.Rules), "rule"), c.Percent())
	for _, rule := range c.Rules {
		if rule.Hits == 0 {
			fmt.Fprintf(w, "  %s %s of %s (%s)\n", paint("no test hits", 33), rule.Name, rule.Domain, rule.At)
		}
	}
}

// The elements of JUnit's XML, as the Jenkins schema junit-10.xsd has them.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string         `xml:"name,attr"`
		ClassName string         `xml:"classname,attr"`
		Error     *junitFailure  `xml:"error"`
		Failures  []junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report in the format of JUnit. A file that cannot be run is a case with an error.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junitSuites
	for _, s := range r.Files {
		suite := junitSuite{Name: s.File, Tests: len(s.Tests)}
		for _, t := range s.Tests {
			c := junitCase{Name: t.Name, ClassName: s.File}
			for i := range t.Failures {
				f := &t.Failures[i]
				var text strings.Builder
				f.write(&text)
				c.Failures = append(c.Failures, junitFailure{
					Message: fmt.Sprintf("%s:%d: want %s, got %s", s.File, f.Line, f.Want, f.Got), Type: "expectation",
					Text: text.String(),
				})
			}
			if !t.OK {
				suite.Failures++
			}
			suite.Cases = append(suite.Cases, c)
		}
		if reason := s.reason(); reason != "" {
			suite.Tests, suite.Errors = suite.Tests+1, 1
			suite.Cases = append(suite.Cases, junitCase{Name: "the file can be run", ClassName: s.File,
				Error: &junitFailure{Message: "the file cannot be run", Type: "file", Text: reason}})
		}
		all.Tests, all.Failures, all.Errors = all.Tests+suite.Tests, all.Failures+suite.Failures, all.Errors+suite.Errors
		all.Suites = append(all.Suites, suite)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	return err
}

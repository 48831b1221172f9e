package policytest

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Report is the result of a run. Its XML is that of JUnit, in the Jenkins schema junit-10.xsd.
type Report struct {
	XMLName xml.Name `json:"-" xml:"testsuites"`
	OK      bool     `json:"ok" xml:"-"`
	Counts
	Suites []*Suite `json:"files" xml:"testsuite"`
	// Rules are the rules that tests can hit: those with a limit, and access rules.
	Rules []*Rule `json:"rules" xml:"-"`

	byRule map[Rule]*Rule // by the rule without hits
}

// Counts count tests, those that failed, and files that cannot be run.
type Counts struct {
	Tests    int `json:"tests" xml:"tests,attr"`
	Failures int `json:"failures" xml:"failures,attr"`
	Errors   int `json:"errors" xml:"errors,attr"`
}

// Suite is the result of a file.
type Suite struct {
	Name string `json:"file" xml:"name,attr"`
	Counts
	Requests int     `json:"requests" xml:"-"`
	Cases    []*Case `json:"cases" xml:"testcase"`
}

// Case is the result of a test. Error is why the file cannot be run.
type Case struct {
	Name     string     `json:"name" xml:"name,attr"`
	File     string     `json:"-" xml:"classname,attr"`
	Line     int        `json:"line,omitempty" xml:"-"`
	Error    *Failure   `json:"error,omitempty" xml:"error"`
	Failures []*Failure `json:"failures,omitempty" xml:"failure"`
}

// Failure is a request with another outcome than expected.
type Failure struct {
	Message string `json:"message" xml:"message,attr"`
	// Text describes the failure for people, with the reason of the outcome.
	Text string `json:"text" xml:",chardata"`
}

// Rule is a rule with a limit, or an access rule, whose name is `access`.
type Rule struct {
	Domain string `json:"domain"`
	Name   string `json:"name"`
	At     string `json:"at"`
	Hits   int    `json:"hits"`
}

// Run runs the tests of files. done is called after each test, with what has run of its file.
func Run(ctx context.Context, s *settings.Settings, files []string, done func(*Suite)) *Report {
	r := &Report{Suites: []*Suite{}, Rules: []*Rule{}, byRule: map[Rule]*Rule{}}
	for _, name := range files {
		suite := &Suite{Name: name, Cases: []*Case{}}
		r.Suites = append(r.Suites, suite)
		f, problems := Read(name)
		err := problems.Err()
		for i := 0; i < len(f.Tests) && err == nil; i++ {
			err = r.test(ctx, s, f, &f.Tests[i], suite)
			done(suite)
		}
		if err != nil {
			suite.Tests, suite.Errors = suite.Tests+1, 1
			suite.Cases = append(suite.Cases, &Case{Name: "the file can be run", File: name,
				Error: &Failure{"the file cannot be run", err.Error()}})
		}
		r.Tests, r.Failures, r.Errors = r.Tests+suite.Tests, r.Failures+suite.Failures, r.Errors+suite.Errors
	}
	r.OK = r.Failures+r.Errors == 0
	return r
}

// Read reads and parses a file.
func Read(name string) (*File, rules.Problems) {
	content, _, err := poll.Read(name, MaxFile)
	if err != nil {
		return &File{}, rules.Problems{*strictyaml.Unreadable(name, "test file", err)}
	}
	return Parse(name, content)
}

// Inputs returns the files that a run of test files reads: also rule files, and requests in JSON.
func Inputs(files []string) (paths []string) {
	for _, name := range files {
		f, _ := Read(name)
		paths = append(append(paths, name), f.Requests...)
		for _, path := range f.Rules {
			paths = append(paths, path)
			entries, _ := os.ReadDir(path) // none in a file
			for _, entry := range entries {
				paths = append(paths, filepath.Join(path, entry.Name()))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// session decides the requests of a test.
type session struct {
	*service.Offline
	file  *File
	clock atomic.Int64
}

// open opens a session with empty buckets. The caller must close it.
func (f *File) open(ctx context.Context, s *settings.Settings) (o *session, err error) {
	o = &session{file: f}
	o.clock.Store(f.Start.UnixMicro())
	o.Offline, err = service.OpenOffline(ctx, service.OfflineConfig{
		Config: service.Config{Settings: s, Stderr: io.Discard, Clock: o.clock.Load},
		Rules:  f.Rules, Stdin: strings.NewReader(""), // a path `-` is an empty file
	})
	if err != nil {
		return nil, err
	}
	o.SetKeys(f.Keys)
	o.ReadKeys()
	return o, nil
}

// send sends the request of a step once. The explanation is that of the moment before.
func (o *session) send(ctx context.Context, s *Step) (got *outcome, why *inspect.Explanation) {
	if at := o.file.Start.Add(s.At).UnixMicro(); o.clock.Swap(at) != at {
		o.ReadKeys()
	}
	why = o.Explain(ctx, s.Method, s.Message)
	return newOutcome(s.Method, o.Decide(ctx, s.Method, s.Message)), why
}

func (r *Report) test(ctx context.Context, s *settings.Settings, f *File, t *Test, suite *Suite) error {
	o, err := f.open(ctx, s)
	if err != nil {
		return err
	}
	defer o.Close()
	r.add(o.Active())
	c := &Case{Name: t.Name, File: f.Name, Line: t.Line}
	for i := range t.Steps {
		step, judged := &t.Steps[i], false
		for n := 1; n <= step.Times && ctx.Err() == nil; n++ {
			got, why := o.send(ctx, step)
			r.hit(got)
			suite.Requests++
			if want, was := step.judge(got, n == step.Times); want != "" && !judged {
				judged = true
				c.Failures = append(c.Failures, step.failure(f.Name, n, want, was, why))
			}
		}
	}
	suite.Tests, suite.Cases = suite.Tests+1, append(suite.Cases, c)
	if c.Failures != nil {
		suite.Failures++
	}
	return ctx.Err()
}

func (s *Step) failure(file string, n int, want, got string, why *inspect.Explanation) *Failure {
	var b, reason strings.Builder
	fmt.Fprintf(&b, "%5d | %s\n      want %s\n      got  %s", s.Line, s.Text, want, got)
	if s.Times > 1 {
		fmt.Fprintf(&b, " (request %d of %d)", n, s.Times)
	}
	why.Text(&reason)
	text := strings.TrimSuffix(reason.String(), " (nothing was charged)\n") // it was, afterwards
	b.WriteString("\n        " + strings.ReplaceAll(text, "\n", "\n        ") + "\n")
	return &Failure{fmt.Sprintf("%s:%d: want %s, got %s", file, s.Line, want, got), suggest.Visible(b.String())}
}

// add adds rules to those that tests can hit.
func (r *Report) add(a *rules.Active) {
	for _, rule := range a.Limits.All() {
		r.rule(Rule{Domain: rule.Domain, Name: rule.Name, At: rule.Node.Position})
	}
	for _, domain := range slices.Sorted(maps.Keys(a.Set.Policies)) {
		for _, access := range a.Set.Policies[domain].Access {
			r.rule(Rule{Domain: domain, Name: "access", At: access.Position})
		}
	}
}

func (r *Report) rule(rule Rule) *Rule {
	if r.byRule[rule] == nil {
		r.byRule[rule] = &rule
		r.Rules = append(r.Rules, &rule)
	}
	return r.byRule[rule]
}

// hit counts the rules that a request has hit.
func (r *Report) hit(o *outcome) {
	if o.Access != nil && o.Access.At != "" {
		r.rule(Rule{Domain: o.Domain, Name: "access", At: o.Access.At}).Hits++
	}
	for i := 0; o.result != nil && i < len(o.result.Statuses); i++ {
		if rule := o.result.Statuses[i].Rule; rule != nil {
			r.rule(Rule{Domain: rule.Domain, Name: rule.Name, At: rule.Node.Position}).Hits++
		}
	}
}

// Coverage returns how many percent of the rules the tests hit, rounded down.
func (r *Report) Coverage() int {
	hit := 0
	for _, rule := range r.Rules {
		hit += min(rule.Hits, 1)
	}
	return 100 * hit / max(1, len(r.Rules))
}

// WriteText writes the report for people. paint returns a text in a color of the terminal.
func (r *Report) WriteText(w io.Writer, paint func(text string, color int) string) {
	for _, s := range r.Suites {
		verdict := fmt.Sprintf("%s   %s: ", paint("ok", 32), s.Name)
		for _, c := range s.Cases {
			if c.Error != nil {
				fmt.Fprintf(w, "%s %s\n%s\n", paint("FAIL", 31), s.Name, suggest.Visible(c.Error.Text))
			} else if c.Failures != nil {
				fmt.Fprintf(w, "%s %s:%d: %s\n", paint("FAIL", 31), s.Name, c.Line, suggest.Visible(c.Name))
			}
			for _, f := range c.Failures {
				fmt.Fprint(w, f.Text)
			}
		}
		if s.Failures > 0 {
			verdict = fmt.Sprintf("%s %s: %d of ", paint("FAIL", 31), s.Name, s.Failures)
		}
		if s.Errors == 0 {
			fmt.Fprintf(w, "%s%s, %s\n", verdict, suggest.Counted(s.Tests, "test"), suggest.Counted(s.Requests, "request"))
		}
	}
	if len(r.Rules) > 0 {
		fmt.Fprintf(w, "coverage: the tests hit %d %% of %s\n", r.Coverage(), suggest.Counted(len(r.Rules), "rule"))
	}
	for _, rule := range r.Rules {
		if rule.Hits == 0 {
			fmt.Fprintf(w, "  no test hits %s of %s (%s)\n", rule.Name, rule.Domain, rule.At)
		}
	}
}

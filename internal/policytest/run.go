package policytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Report is the result of a run.
type Report struct {
	// OK means that all tests passed.
	OK       bool     `json:"ok"`
	Files    []*Suite `json:"files"`
	Coverage Coverage `json:"coverage"`
}

// Suite is the result of a file.
type Suite struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	// Problems are why the file cannot be run. Error is why its rules or settings cannot be used.
	Problems []command.ProblemJSON `json:"problems,omitempty"`
	Error    string                `json:"error,omitempty"`
	Tests    []Result              `json:"tests"`

	problems rules.Problems
}

// Result is the result of a test.
type Result struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	OK       bool      `json:"ok"`
	Requests int       `json:"requests"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is a request with another outcome than expected.
type Failure struct {
	Line int    `json:"line"`
	Text string `json:"text"`
	// Request is the first of the repetitions that differs, counted from 1.
	Request int    `json:"request"`
	Want    string `json:"want"`
	Got     string `json:"got"`
	// Explanation is why the request had this outcome.
	Explanation string `json:"explanation"`
}

// Coverage is which rules the tests hit.
type Coverage struct {
	Rules []*Rule `json:"rules"`
	Hit   int     `json:"hit"`
}

// Rule is a rule with a limit, or an access rule.
type Rule struct {
	Domain string `json:"domain"`
	// Name is that of the rule in metrics, and `access` for an access rule.
	Name string `json:"name"`
	At   string `json:"at"`
	Hits int    `json:"hits"`
}

// Percent returns how many percent of the rules the tests hit, rounded down.
func (c *Coverage) Percent() int { return 100 * c.Hit / max(1, len(c.Rules)) }

// run is a run of files.
type run struct {
	hits map[Rule]int // by the rule without Hits
}

// Run runs the tests of files. done is called after each test, with its file as far as it has run.
func Run(ctx context.Context, files []string, done func(*Suite)) *Report {
	r := &run{hits: map[Rule]int{}}
	report := &Report{OK: true, Files: []*Suite{}, Coverage: Coverage{Rules: []*Rule{}}}
	for _, name := range files {
		s := &Suite{File: name, Tests: []Result{}}
		if err := r.file(ctx, s, done); err != nil {
			s.Error = err.Error()
		}
		s.Problems = command.ProblemsOf(s.problems)
		s.OK = s.Error == "" && !s.problems.HasErrors() && !slices.ContainsFunc(s.Tests, func(t Result) bool { return !t.OK })
		report.OK = report.OK && s.OK
		report.Files = append(report.Files, s)
	}
	for rule, hits := range r.hits {
		rule.Hits = hits
		report.Coverage.Rules = append(report.Coverage.Rules, &rule)
		if hits > 0 {
			report.Coverage.Hit++
		}
	}
	slices.SortFunc(report.Coverage.Rules, func(a, b *Rule) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	return report
}

// sortKey sorts rules by file and line.
func (r *Rule) sortKey() string {
	file, line := r.At, 0
	if i := strings.LastIndexByte(r.At, ':'); i >= 0 {
		file = r.At[:i]
		_, _ = fmt.Sscan(r.At[i+1:], &line) // 0 without a number
	}
	return fmt.Sprintf("%s:%9d %s %s", file, line, r.Domain, r.Name)
}

// Read reads and parses a file. If it has problems, it cannot be run.
func Read(name string) (*File, rules.Problems) {
	content, _, err := poll.Read(name, MaxFile)
	if err != nil {
		return &File{Name: name}, rules.Problems{*strictyaml.Unreadable(name, "test file", err)}
	}
	return Parse(name, content)
}

// file runs the tests of a file.
func (r *run) file(ctx context.Context, s *Suite, done func(*Suite)) error {
	f, problems := Read(s.File)
	if s.problems = problems; problems.HasErrors() {
		return nil
	}
	read, err := f.readSettings()
	if err != nil {
		return err
	}
	for i := range f.Tests {
		result, err := r.test(ctx, f, read, &f.Tests[i])
		if err != nil {
			return err
		}
		s.Tests = append(s.Tests, result)
		done(s)
	}
	return nil
}

// readSettings reads the settings of the environment, with those of the file in their place.
func (f *File) readSettings() (*settings.Settings, error) {
	for _, set := range f.Settings {
		before, was := os.LookupEnv(set.Name)
		if err := os.Setenv(set.Name, set.Value); err != nil {
			return nil, err
		}
		defer func() {
			if os.Unsetenv(set.Name); was {
				_ = os.Setenv(set.Name, before) // it was possible before
			}
		}()
	}
	s, err := settings.Read()
	if err != nil {
		return nil, fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	return s, nil
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
		Config: service.Config{Settings: s, Stderr: io.Discard, Clock: o.clock.Load}, Rules: f.Rules,
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

// test runs a test.
func (r *run) test(ctx context.Context, f *File, s *settings.Settings, t *Test) (Result, error) {
	result := Result{Name: t.Name, Line: t.Line}
	o, err := f.open(ctx, s)
	if err != nil {
		return result, err
	}
	defer o.Close()
	r.addRules(o.Active())
	for i := range t.Steps {
		step := &t.Steps[i]
		if err := step.load(); err != nil {
			return result, fmt.Errorf("%s:%d: %w", f.Name, step.Line, err)
		}
		failed := false
		for n := 1; n <= step.Times; n++ {
			if ctx.Err() != nil {
				return result, errors.New("interrupted")
			}
			got, why := o.send(ctx, step)
			r.hit(got)
			result.Requests++
			if failed {
				continue
			}
			if failure := step.judge(got, n); failure != nil {
				failed, failure.Explanation = true, text(why)
				result.Failures = append(result.Failures, *failure)
			}
		}
	}
	result.OK = len(result.Failures) == 0
	return result, nil
}

// load reads the request of a step from its file.
func (s *Step) load() error {
	if s.File == "" {
		return nil
	}
	content, _, err := poll.Read(s.File, MaxFile)
	if err != nil {
		return err
	}
	s.Method, s.Message, err = inspect.FromJSON(content)
	if err != nil {
		return fmt.Errorf("%s: %w", s.File, err)
	}
	return nil
}

// judge returns how the outcome of a repetition differs from what the step expects, nil if it does not.
func (s *Step) judge(got *outcome, repetition int) *Failure {
	var wanted, actual []string
	for i := range s.expected {
		e := &s.expected[i]
		if repetition < s.Times && !e.each {
			continue
		}
		if ok, was := e.holds(got); !ok {
			wanted, actual = append(wanted, e.text), append(actual, was)
		}
	}
	if wanted == nil {
		return nil
	}
	return &Failure{Line: s.Line, Text: s.Text, Request: repetition,
		Want: strings.Join(wanted, " "), Got: strings.Join(actual, " ")}
}

// text returns an explanation as text. The request was charged after it.
func text(e *inspect.Explanation) string {
	var b strings.Builder
	e.Text(&b)
	return strings.Replace(b.String(), " (nothing was charged)\n", "\n", 1)
}

// addRules adds rules to those that tests can hit.
func (r *run) addRules(a *rules.Active) {
	for _, rule := range a.Limits.All() {
		r.hits[ofLimit(rule)] += 0
	}
	for _, domain := range slices.Sorted(maps.Keys(a.Set.Policies)) {
		for _, access := range a.Set.Policies[domain].Access {
			r.hits[Rule{Domain: domain, Name: accessRule, At: access.Position}] += 0
		}
	}
}

// accessRule is the name of access rules.
const accessRule = "access"

func ofLimit(rule *ratelimit.Rule) Rule {
	return Rule{Domain: rule.Domain, Name: rule.Name, At: rule.Node.Position}
}

// hit counts the rules that a request has hit.
func (r *run) hit(o *outcome) {
	if o.Access != nil && o.Access.At != "" {
		r.hits[Rule{Domain: o.Domain, Name: accessRule, At: o.Access.At}]++
	}
	if o.result == nil {
		return
	}
	for i := range o.result.Statuses {
		if rule := o.result.Statuses[i].Rule; rule != nil {
			r.hits[ofLimit(rule)]++
		}
	}
}

// Inputs returns the files that a run of test files reads: also rule files, and requests in JSON.
func Inputs(files []string) (paths []string) {
	for _, name := range files {
		f, _ := Read(name)
		paths = append(paths, name)
		for _, path := range f.Rules {
			entries, err := os.ReadDir(path)
			if err != nil { // a file
				paths = append(paths, path)
			}
			for _, entry := range entries {
				paths = append(paths, filepath.Join(path, entry.Name()))
			}
		}
		for _, t := range f.Tests {
			for _, s := range t.Steps {
				if s.File != "" {
					paths = append(paths, s.File)
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

package policytest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Bounds of a file. They keep a typing mistake from running for hours.
const (
	MaxFile     = 1 << 20 // bytes
	maxTimes    = 10_000  // of one line
	maxRequests = 100_000
	maxTime     = 36_500 * command.Day
	maxProblems = 50
)

// defaultStart is where the clock of each test starts. Windows of each unit begin then: 15,330 days after 1970 are a
// whole number of weeks, of months of 30 days and of years of 365 days.
var defaultStart = time.Unix(15_330*86_400, 0).UTC()

// File is a file with tests. Its paths are relative to the working directory.
type File struct {
	Name string
	// Rules are the rule files and directories.
	Rules []string
	// Settings are set for these tests only.
	Settings []Setting
	// Keys are API keys, by their texts.
	Keys map[string]apikey.Record
	// Start is the time of the clock at 0s of each test.
	Start time.Time
	Tests []Test
}

// Setting is an environment variable.
type Setting struct{ Name, Value string }

// Test is a test. It starts with empty buckets.
type Test struct {
	Name  string
	Line  int
	Steps []Step
}

// Step is a line of a test: a request, and what is expected.
type Step struct {
	Line int
	Text string
	// At is the time after the start of the test.
	At time.Duration
	// Times is how many times the request is sent.
	Times int
	// Method and Message are the request, unless File has it.
	Method  flow.Method
	Message string
	File    string

	expected []expectation
}

// parser reads a file line by line.
type parser struct {
	file     *File
	problems rules.Problems
	line     int
	source   string
	at       time.Duration
	requests int
	names    map[string]int // the lines of tests by name
	secret   *apikey.Secret
}

// Parse reads a file with tests. If one of the problems is an error, the file cannot be run. No content makes Parse
// panic or run for long.
func Parse(name string, content []byte) (*File, rules.Problems) {
	p := &parser{
		file:  &File{Name: name, Start: defaultStart, Keys: map[string]apikey.Record{}},
		names: map[string]int{},
	}
	p.secret, _ = apikey.NewSecret(apikey.NewServerSecret(), "") // it is long enough
	switch {
	case len(content) > MaxFile:
		p.fail(word{}, "the file is larger than 1 MiB", "split it")
		return p.file, p.problems
	case !utf8.Valid(content):
		p.fail(word{}, "the file is not UTF-8", "save it as UTF-8")
		return p.file, p.problems
	}
	for line := range strings.Lines(string(content)) {
		p.line++
		p.source = strings.TrimRight(line, "\r\n")
		if words, ok := p.split([]rune(p.source)); ok && len(words) > 0 {
			p.statement(words)
		}
		if len(p.problems) >= maxProblems {
			return p.file, p.problems
		}
	}
	p.line, p.source = 0, ""
	if len(p.file.Rules) == 0 && len(p.problems) == 0 {
		p.fail(word{}, "the file names no rules", "begin it with `rules PATH`, relative to this file")
	}
	if len(p.file.Tests) == 0 && len(p.problems) == 0 {
		p.fail(word{}, "the file has no test", "add a line `test NAME`, and requests below it")
	}
	return p.file, p.problems
}

// fail reports a problem at a word, or at the whole file for none.
func (p *parser) fail(w word, message string, hints ...string) {
	hints = slices.DeleteFunc(hints, func(h string) bool { return h == "" })
	problem := rules.Problems{{File: p.file.Name, Message: message, Hints: hints}}
	if w.column > 0 {
		problem[0].Line, problem[0].Column, problem[0].Length, problem[0].Source = p.line, w.column, w.length, p.source
	}
	p.problems = append(p.problems, problem...)
}

// unknown reports a word that is none of those wanted.
func (p *parser) unknown(w word, what string, wanted []string, hints ...string) {
	p.fail(w, "unknown "+what+" "+suggest.Quoted(w.text),
		append([]string{suggest.DidYouMean(w.text, wanted), "want " + suggest.OneOf(wanted)}, hints...)...)
}

// want reports whether a line has so many words after its first. It reports a problem if not.
func (p *parser) want(words []word, least, most int, form string) bool {
	if n := len(words) - 1; n >= least && n <= most {
		return true
	}
	p.fail(words[0], suggest.Quoted(words[0].text)+" needs other words after it", "write `"+form+"`")
	return false
}

// head are the words of lines before the first test, verbs those of requests.
var (
	head  = []string{"rules", "start", "set", "key"}
	verbs = []string{"limit", "check", "request"}
)

// statement reads a line.
func (p *parser) statement(words []word) {
	first := words[0]
	if slices.Contains(head, first.text) && len(p.file.Tests) > 0 {
		p.fail(first, suggest.Quoted(first.text)+" after the first test", "move the line above the first `test`")
		return
	}
	switch first.text {
	case "rules":
		if p.want(words, 1, len(words), "rules PATH...") {
			for _, w := range words[1:] {
				p.file.Rules = append(p.file.Rules, p.path(w.text))
			}
		}
	case "start":
		p.start(words)
	case "set":
		p.set(words)
	case "key":
		if p.want(words, 1, len(words), "key TEXT owner=NAME") {
			p.key(words[1], words[2:])
		}
	case "test":
		p.test(words)
	default:
		p.step(words)
	}
}

// path returns a path that is relative to the file.
func (p *parser) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(p.file.Name), path)
}

func (p *parser) start(words []word) {
	if !p.want(words, 1, 1, "start 2026-01-31T09:00:00Z") {
		return
	}
	at, err := time.Parse(time.RFC3339, words[1].text)
	switch {
	case err != nil || at.Year() < 1970 || at.Year() > 2200:
		p.fail(words[1], suggest.Quoted(words[1].text)+" is no time", "want a time such as 2026-01-31T09:00:00Z")
	case len(p.file.Keys) > 0:
		p.fail(words[0], "`start` after a key", "move the line above the first `key`, whose times depend on it")
	}
	p.file.Start = at
}

func (p *parser) set(words []word) {
	if !p.want(words, 1, 1, "set NAME=VALUE") {
		return
	}
	name, value, found := strings.Cut(words[1].text, "=")
	names := settings.Names()
	switch {
	case !found:
		p.fail(words[1], suggest.Quoted(words[1].text)+" sets nothing", "write `set NAME=VALUE`")
	case !slices.Contains(names, name):
		p.fail(words[1], "unknown setting "+suggest.Quoted(name), suggest.DidYouMean(name, names),
			"`extauthz settings` lists all settings")
	}
	p.file.Settings = append(p.file.Settings, Setting{name, value})
}

// key reads an API key. Its fields are the flags of `extauthz keys create`.
func (p *parser) key(text word, fields []word) {
	r := apikey.Record{ID: text.text, Weak: true}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	limit := command.AddRecordFlags(flags, &r, p.file.Start)
	flags.StringVar(&r.ID, "id", r.ID, "")
	flags.BoolVar(&r.Disabled, "disabled", false, "")
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	before := len(p.problems)
	for _, w := range fields {
		name, value, found := strings.Cut(w.text, "=")
		switch {
		case !slices.Contains(names, name):
			p.unknown(word{name, w.column, len([]rune(name))}, "field", names,
				"write `key TEXT owner=NAME`, with a word with spaces in quotes")
		case !found:
			p.fail(w, "the field "+suggest.Quoted(name)+" without a value", "write `"+name+"=VALUE`")
		default:
			p.flag(w, flags, name, value)
		}
	}
	r.Hash = p.secret.Hash(text.text) // Err wants one; Offline.SetKeys sets that of the service
	err := apikey.CheckWeak(text.text)
	if err == nil {
		err = r.Err()
	}
	_, twice := p.file.Keys[text.text]
	for _, other := range p.file.Keys {
		twice = twice || other.ID == r.ID
	}
	switch {
	case len(p.problems) > before: // what is missing may be in a word with a mistake
	case err != nil:
		p.fail(text, err.Error())
	case r.Limit == nil && *limit != ratelimit.LimitSpec{}:
		p.fail(text, "`algorithm` and `burst` without `limit`", "add `limit=100/minute`")
	case twice:
		p.fail(text, "this key, or one with its id, is above", "give each key its own text and `id`")
	}
	p.file.Keys[text.text] = r
}

// flag sets a flag to the value of a word. It reports a problem if that fails.
func (p *parser) flag(w word, flags *pflag.FlagSet, name, value string) {
	err := command.SetFlag(flags, name, value)
	if err != nil {
		p.fail(w, suggest.Quoted(name)+" cannot be "+suggest.Quoted(value), err.Error())
	}
}

func (p *parser) test(words []word) {
	var parts []string
	for _, w := range words[1:] {
		parts = append(parts, w.text)
	}
	name := strings.Join(parts, " ")
	if name == "" {
		p.fail(words[0], "a test without a name", "write `test` and a sentence, such as `test a sixth request is denied`")
	} else if line := p.names[name]; line > 0 {
		p.fail(words[1], fmt.Sprintf("the test in line %d has this name", line), "give each test its own name")
	}
	p.names[name], p.at = p.line, 0
	p.file.Tests = append(p.file.Tests, Test{Name: name, Line: p.line})
}

// isTime matches the first word of a step that begins with a time.
var (
	isTime  = regexp.MustCompile(`^\+?[0-9]`)
	isTimes = regexp.MustCompile(`^x[0-9]+$`)
)

// step reads a request, and what is expected of it.
func (p *parser) step(words []word) {
	if isTime.MatchString(words[0].text) {
		p.time(words[0])
		if len(words) == 1 {
			p.fail(words[0], "a time without a request", "want "+suggest.OneOf(verbs)+" after it")
			return
		}
		words = words[1:]
	}
	verb := words[0]
	switch {
	case !slices.Contains(verbs, verb.text):
		p.unknown(verb, "word", slices.Concat(head, []string{"test"}, verbs), "a request begins with a time, such as `10s`, "+
			"or has the time of the line above")
		return
	case len(p.file.Tests) == 0:
		p.fail(verb, "a request before the first test", "add a line `test NAME` above it")
		return
	}
	s := Step{Line: p.line, Text: strings.TrimSpace(p.source), At: p.at, Times: 1}
	arrow := slices.IndexFunc(words, func(w word) bool { return w.text == "->" })
	if arrow < 0 || arrow == len(words)-1 {
		p.fail(verb, "a request without an expectation", "add ` -> allowed` or ` -> refused` at the end")
		return
	}
	request := slices.DeleteFunc(words[1:arrow:arrow], func(w word) bool {
		is := isTimes.MatchString(w.text)
		if is {
			s.Times = p.times(w)
		}
		return is
	})
	if p.requests += s.Times; p.requests > maxRequests {
		p.fail(verb, "the file sends more than 100,000 requests", "use `hits N` in place of repetitions, or split the file")
	}
	switch {
	case verb.text != "request":
		p.request(&s, verb, request)
	case len(request) != 1:
		p.fail(verb, "`request` needs one file", "write `request FILE -> allowed`: the file has a request of Envoy in JSON")
	default:
		s.File = p.path(request[0].text)
	}
	p.expect(&s, verb.text, words[arrow+1:])
	test := &p.file.Tests[len(p.file.Tests)-1]
	test.Steps = append(test.Steps, s)
}

// time sets the time of this line and of those below it.
func (p *parser) time(w word) {
	text, relative := strings.CutPrefix(w.text, "+")
	after, err := command.Duration(text)
	if relative {
		after += p.at
	}
	switch {
	case err != nil || after < 0 || after > maxTime:
		p.fail(w, suggest.Quoted(w.text)+" is no time",
			"want the time since the start of the test, such as `90s`, `1h30m` or `7d`, at most 36500d",
			"or that since the line above, such as `+10s`")
	case after < p.at:
		p.fail(w, fmt.Sprintf("%s is before the time of the line above, %s", suggest.Quoted(w.text), p.at),
			"time cannot go back within a test: move the line up, or write `+"+text+"`")
	default:
		p.at = after
	}
}

func (p *parser) times(w word) int {
	n, err := strconv.Atoi(w.text[1:])
	if err != nil || n < 1 || n > maxTimes {
		p.fail(w, suggest.Quoted(w.text)+" is no number of repetitions", fmt.Sprintf("want x1 to x%d", maxTimes),
			"a rate limit request can have more hits: `hits 50000`")
		return 1
	}
	return n
}

package policytest

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
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
	// Rules are the rule files and directories, Requests the files with requests in JSON.
	Rules, Requests []string
	// Keys are API keys, by their texts.
	Keys map[string]apikey.Record
	// Start is the time of the clock at 0s of each test.
	Start time.Time
	Tests []Test
}

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
	// At is the time after the start of the test. Times is how many times the request is sent.
	At       time.Duration
	Times    int
	Method   flow.Method
	Message  string
	expected []expectation
}

// forms are the forms of lines, by their first word after the time.
var forms = []string{
	"rules PATH...", "start 2026-01-31T09:00:00Z", "key TEXT owner=NAME [plan=NAME] [limit=100/minute] ...",
	"test A SENTENCE", "[TIME] limit DOMAIN KEY=VALUE,... [hits N] [xN] -> EXPECTED...",
	"[TIME] check METHOD PATH [NAME:VALUE...] [domain DOMAIN] [host HOST] [source IP] [xN] -> EXPECTED...",
	"[TIME] request FILE [xN] -> EXPECTED...",
}

// parser reads a file line by line.
type parser struct {
	file     *File
	secret   *apikey.Secret
	problems rules.Problems
	line     int
	source   string
	form     string // of the line
	at       time.Duration
	requests int
}

// word is a word of a line. Columns count from 1, in characters. Column 0 is the whole file.
type word struct {
	text           string
	column, length int
}

var (
	words   = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	isTime  = regexp.MustCompile(`^\+?[0-9]`)
	isTimes = regexp.MustCompile(`^x[0-9]+$`)
)

// Parse reads a file with tests. A file with an error cannot be run. No content makes Parse panic or run for long.
func Parse(name string, content []byte) (*File, rules.Problems) {
	p := &parser{file: &File{Name: name, Start: defaultStart, Keys: map[string]apikey.Record{}}}
	p.secret, _ = apikey.NewSecret(apikey.NewServerSecret(), "") // it is long enough
	if len(content) > MaxFile || !utf8.Valid(content) {
		p.fail(word{}, "the file is not UTF-8, or larger than 1 MiB")
		return p.file, p.problems
	}
	for line := range strings.Lines(string(content)) {
		p.line, p.source, p.form = p.line+1, strings.TrimRight(line, "\r\n"), ""
		if list := p.split(); len(list) > 0 {
			p.statement(list)
		}
		if len(p.problems) >= maxProblems {
			return p.file, p.problems
		}
	}
	p.form = ""
	for _, t := range p.file.Tests {
		if len(t.Steps) == 0 && p.problems == nil {
			p.fail(word{}, fmt.Sprintf("the test in line %d has no request", t.Line), "write `"+forms[4]+"`")
		}
	}
	if (len(p.file.Rules) == 0 || len(p.file.Tests) == 0) && p.problems == nil {
		p.fail(word{}, "the file has no rules or no test", "write `"+forms[0]+"`, and below it `"+forms[3]+"`")
	}
	return p.file, p.problems
}

// split returns the words of a line, up to a comment. A word in quotes may have spaces.
func (p *parser) split() (list []word) {
	for _, at := range words.FindAllStringIndex(p.source, -1) {
		text := p.source[at[0]:at[1]]
		w := word{text, 1 + utf8.RuneCountInString(p.source[:at[0]]), utf8.RuneCountInString(text)}
		switch quoted := text[0] == '\'' || text[0] == '"'; {
		case text[0] == '#':
			return list
		case quoted && (len(text) == 1 || text[len(text)-1] != text[0]):
			p.fail(w, "a quote that does not end", "a word with spaces is in quotes: 'authorization: Bearer x'")
			return nil
		case quoted:
			w.text = text[1 : len(text)-1]
		}
		list = append(list, w)
	}
	return list
}

// fail reports a problem at a word, with the form of the line.
func (p *parser) fail(w word, message string, hints ...string) {
	if p.form != "" {
		hints = append(hints, "write `"+p.form+"`")
	}
	hints = slices.DeleteFunc(hints, func(h string) bool { return h == "" })
	problem := strictyaml.Problem{File: p.file.Name, Message: message, Hints: hints}
	if w.column > 0 {
		problem.Line, problem.Column, problem.Length, problem.Source = p.line, w.column, w.length, p.source
	}
	p.problems = append(p.problems, problem)
}

// unknown reports a word that is none of those wanted.
func (p *parser) unknown(w word, wanted []string, hints ...string) {
	p.fail(w, "unknown word "+suggest.Quoted(w.text),
		append([]string{suggest.DidYouMean(w.text, wanted), "want " + suggest.OneOf(wanted)}, hints...)...)
}

func (p *parser) set(w word, flags *pflag.FlagSet, name, value string) {
	if err := flags.Set(name, value); err != nil {
		p.fail(w, suggest.Quoted(name)+" cannot be "+suggest.Quoted(value), command.Wanted(err).Error())
	}
}

func (p *parser) statement(list []word) {
	timed := isTime.MatchString(list[0].text)
	if timed {
		p.time(list[0])
	}
	if timed && len(list) > 1 {
		list = list[1:]
	}
	verb, rest := list[0], list[1:]
	var verbs []string
	kind := -1
	for i, form := range forms {
		verbs = append(verbs, strings.Fields(strings.TrimPrefix(form, "[TIME] "))[0])
		if verbs[i] == verb.text {
			kind, p.form = i, form
		}
	}
	const key, test = 2, 3 // kinds of lines: those before belong above the first test
	switch first := len(p.file.Tests) == 0; {
	case kind < 0:
		p.unknown(verb, verbs)
	case len(rest) == 0, kind <= test && timed:
		p.fail(verb, suggest.Quoted(verb.text)+" needs other words")
	case kind < test && !first || kind > test && first:
		p.fail(verb, suggest.Quoted(verb.text)+" on the wrong side of the first `test`",
			"rules, start and keys are above the first test, requests below it")
	case verb.text == "rules":
		for _, w := range rest {
			p.file.Rules = append(p.file.Rules, p.path(w))
		}
	case verb.text == "start":
		at, err := time.Parse(time.RFC3339, rest[0].text)
		if p.file.Start = at; err != nil || at.Year() < 1970 || at.Year() > 2100 || len(p.file.Keys) > 0 {
			p.fail(rest[0], "this is no time, or it is below a key")
		}
	case kind == key:
		p.key(rest[0], rest[1:])
	case kind == test:
		var name []string
		for _, w := range rest {
			name = append(name, w.text)
		}
		p.at, p.file.Tests = 0, append(p.file.Tests, Test{Name: strings.Join(name, " "), Line: p.line})
	default:
		p.step(verb, rest)
	}
}

// path returns a path that is relative to the file.
func (p *parser) path(w word) string {
	if filepath.IsAbs(w.text) {
		return w.text
	}
	return filepath.Join(filepath.Dir(p.file.Name), w.text)
}

// time sets the time of this line and of those below it.
func (p *parser) time(w word) {
	text, relative := strings.CutPrefix(w.text, "+")
	at, err := command.Duration(text)
	if relative {
		at += p.at
	}
	if err != nil || at < p.at || at > maxTime {
		p.fail(w, fmt.Sprintf("%s is no time after %s, that of the line above", suggest.Quoted(w.text), p.at),
			"want the time since the start of the test (`90s`, `1h30m`, `7d`), or since the line above (`+10s`), at most 36500d")
		return
	}
	p.at = at
}

// key reads an API key. Its fields are the flags of `extauthz keys create`.
func (p *parser) key(text word, fields []word) {
	r := apikey.Record{ID: text.text, Hash: p.secret.Hash(text.text), Weak: true}
	flags, names := pflag.NewFlagSet("", pflag.ContinueOnError), []string(nil)
	limit := command.AddRecordFlags(flags, &r, p.file.Start)
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	before := len(p.problems)
	for _, w := range fields {
		name, value, _ := strings.Cut(w.text, "=")
		if !slices.Contains(names, name) {
			p.unknown(word{name, w.column, utf8.RuneCountInString(name)}, names)
			continue
		}
		p.set(w, flags, name, value)
	}
	err := apikey.CheckWeak(text.text)
	if err == nil {
		err = r.Err()
	}
	if r.Limit == nil && *limit != (ratelimit.LimitSpec{}) {
		err = errors.New("`algorithm`, `burst` and `calendar` need `limit`")
	}
	if _, twice := p.file.Keys[text.text]; twice {
		err = fmt.Errorf("the key %s is above", suggest.Quoted(text.text))
	}
	if err != nil && len(p.problems) == before {
		p.fail(text, err.Error())
	}
	p.file.Keys[text.text] = r
}

// step reads a request, and what is expected of it.
func (p *parser) step(verb word, list []word) {
	s := Step{Line: p.line, Text: strings.TrimSpace(p.source), At: p.at, Times: 1}
	arrow := slices.IndexFunc(list, func(w word) bool { return w.text == "->" })
	if arrow < 1 || arrow == len(list)-1 {
		p.fail(verb, "no request, or nothing is expected of it", "end the line with ` -> allowed` or ` -> refused`")
		return
	}
	request := list[:arrow]
	if last := request[arrow-1]; isTimes.MatchString(last.text) {
		var err error
		if s.Times, err = strconv.Atoi(last.text[1:]); err != nil || s.Times < 1 || s.Times > maxTimes {
			p.fail(last, fmt.Sprintf("repetitions: want x1 to x%d, or `hits N`", maxTimes))
			return
		}
		request = request[:arrow-1]
	}
	if p.requests += s.Times; p.requests > maxRequests {
		p.fail(verb, fmt.Sprintf("the file sends more than %d requests: use `hits N`, or split it", maxRequests))
	}
	before := len(p.problems)
	if err := p.request(&s, verb, request); err != nil && len(p.problems) == before {
		p.fail(verb, "this is no request: "+err.Error())
	}
	p.expect(&s, list[arrow+1:])
	test := &p.file.Tests[len(p.file.Tests)-1]
	test.Steps = append(test.Steps, s)
}

// request reads a request. Its words set the flags that extauthz explain has for a request.
func (p *parser) request(s *Step, verb word, list []word) error {
	s.Method = flow.Check
	first, options, pair, separator := []string{"method", "path"}, []string{"domain", "host", "source"}, "header", ":"
	switch verb.text {
	case "limit":
		s.Method = flow.RateLimit
		first, options, pair, separator = []string{"domain"}, []string{"hits"}, "descriptor", "="
	case "request":
		if len(list) != 1 {
			return errors.New("it needs one file")
		}
		p.file.Requests = append(p.file.Requests, p.path(list[0]))
		content, _, err := poll.Read(p.path(list[0]), MaxFile)
		if err == nil {
			s.Method, s.Message, err = inspect.FromJSON(content)
		}
		return err
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	request := command.AddRequestFlags(flags)
	for i := 0; i < len(list); i++ {
		switch w := list[i]; {
		case i < len(first):
			p.set(w, flags, first[i], w.text)
		case i+1 < len(list) && slices.Contains(options, w.text):
			i++
			p.set(list[i], flags, w.text, list[i].text)
		case strings.Contains(w.text, separator):
			p.set(w, flags, pair, w.text)
		default:
			p.unknown(w, options, "a word with spaces is in quotes")
		}
	}
	if len(list) < len(first) {
		return errors.New("it lacks words")
	}
	if path := flags.Lookup("path").Value.String(); !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%s is no path", suggest.Quoted(path))
	}
	message, err := request.Read(s.Method == flow.Check)
	if err != nil {
		return err
	}
	b, err := proto.Marshal(message)
	s.Message = string(b)
	return err
}

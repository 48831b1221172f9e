package storetest

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// The cases are scripts. The suite sends each line to the store and writes the line again with the store's answer. A
// case passes if the result equals the script. A line that starts with # is a comment.
//
//	== a denied request charges none of its buckets   the title of a case
//	limit a 10/1h                                      a bucket: requests/window; the case runs for each algorithm
//	limit b 2/1h token_bucket burst 5                  a bucket of this algorithm; a later limit line changes the limit
//	0s a:4 b:2    -> allowed a=6 b=3                   the request at this time: a cost of 4 for a and of 2 for b
//	1m a:4 b:9    -> denied retry never a=6 b!3        the answer: a fits, 6 remain; b does not fit, 3 remain
//	 & a?         -> allowed a=6                       a peek, in the same call of Take as the line above
//	1m a:-3 a:1   -> allowed a=8                       a refund of 3; the same bucket twice
//
// A take may have the suffixes /shadow, /quota and /counted (denials are charged). Retry is compared only if a line
// has it.
//
//go:embed cases/*.txt
var caseFiles embed.FS

// epoch is time 0 of the cases. It is midnight, so that windows of up to a day begin there.
var epoch = time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)

// script is one case.
type script struct {
	file, title string
	lines       []string
}

// Cases runs the cases of cases/*.txt with a store.
func Cases(t *testing.T, store Store) {
	t.Helper()
	run := keyspace(t)
	for _, s := range readScripts(t) {
		t.Run(s.title, func(t *testing.T) {
			if !s.general() {
				s.run(t, store, run, 0)
				return
			}
			for _, algorithm := range bucket.Algorithms {
				t.Run(algorithm.String(), func(t *testing.T) { s.run(t, store, run, algorithm) })
			}
		})
	}
}

// general reports whether a limit of the case names no algorithm.
func (s script) general() bool {
	for _, line := range s.lines {
		if words := strings.Fields(line); words[0] == "limit" && len(words) == 3 {
			return true
		}
	}
	return false
}

// run runs the case. The given algorithm applies to limits that name none.
func (s script) run(t *testing.T, store Store, run string, algorithm bucket.Algorithm) {
	limits := map[string]bucket.Limit{}
	var got []string
	for i := 0; i < len(s.lines); {
		if words := strings.Fields(s.lines[i]); words[0] == "limit" {
			limits[words[1]] = parseLimit(t, words[2:], algorithm)
			got = append(got, s.lines[i])
			i++
			continue
		}
		batch, lines := []bucket.Request(nil), s.lines[i:]
		var at time.Duration
		for n := 0; n < len(lines) && (n == 0 || strings.HasPrefix(lines[n], "&")); n++ {
			sent, _, _ := strings.Cut(lines[n], "->")
			words := strings.Fields(sent)
			if n == 0 {
				at = parseDuration(t, words[0])
			}
			r := bucket.Request{At: epoch.Add(at).UnixMicro()}
			for _, word := range words[1:] {
				r.Add(parseTake(t, word, limits, func(bucketName string) string {
					return fmt.Sprintf("%s/%s/%s/%s", run, s.title, algorithm, bucketName)
				}))
			}
			batch = append(batch, r)
		}
		for n, o := range take(t, store, batch...) {
			got = append(got, transcript(lines[n], batch[n].Takes, o))
		}
		i += len(batch)
	}
	if !slices.Equal(s.lines, got) {
		t.Errorf("%s: %s (-want +got):\n%s", s.file, s.title, sideBySide(s.lines, got))
	}
}

// sideBySide shows the differences of two scripts with the same number of lines. Unlike cmp.Diff, it keeps lines whole.
func sideBySide(want, got []string) string {
	var b strings.Builder
	for i := range want {
		if want[i] == got[i] {
			b.WriteString("  " + want[i] + "\n")
			continue
		}
		b.WriteString("- " + want[i] + "\n+ " + got[i] + "\n")
	}
	return b.String()
}

// transcript returns the line with the store's answer.
func transcript(line string, takes []bucket.Take, o bucket.Outcome) string {
	sent, wanted, _ := strings.Cut(line, "->")
	var b strings.Builder
	b.WriteString(sent + "-> ")
	if o.Err != nil {
		b.WriteString("error: " + o.Err.Error())
		return b.String()
	}
	if o.Allowed {
		b.WriteString("allowed")
	} else {
		b.WriteString("denied")
	}
	if strings.Contains(wanted, " retry ") {
		wait := "never"
		if o.RetryAfter != bucket.Never {
			wait = (time.Duration(o.RetryAfter) * time.Microsecond).String()
		}
		b.WriteString(" retry " + wait)
	}
	for i, took := range takes {
		verdict := "!"
		if o.Decisions[i].Allowed {
			verdict = "="
		}
		bucketName := took.Key[strings.LastIndex(took.Key, "/")+1:]
		fmt.Fprintf(&b, " %s%s%d", bucketName, verdict, o.Decisions[i].Remaining)
	}
	return b.String()
}

// parseLimit reads `10/1h`, `10/1h token_bucket` or `10/1h token_bucket burst 5`.
func parseLimit(t *testing.T, words []string, algorithm bucket.Algorithm) bucket.Limit {
	t.Helper()
	requests, window, _ := strings.Cut(words[0], "/")
	limit := bucket.Limit{Algorithm: algorithm, Window: parseDuration(t, window).Microseconds(),
		Requests: int64(parseNumber(t, requests))}
	limit.Burst = limit.Requests
	if len(words) > 1 {
		if err := limit.Algorithm.UnmarshalText([]byte(words[1])); err != nil {
			t.Fatal(err)
		}
	}
	if len(words) > 3 {
		limit.Burst = int64(parseNumber(t, words[3]))
	}
	if err := limit.Check(); err != nil {
		t.Fatalf("limit %q: %v", words, err)
	}
	return limit
}

// parseTake reads `a:4`, `a?` or `a:-3`, with the suffixes /shadow, /quota and /counted.
func parseTake(t *testing.T, word string, limits map[string]bucket.Limit,
	key func(bucketName string) string) bucket.Take {
	t.Helper()
	word, options, _ := strings.Cut(word, "/")
	bucketName, amount, costs := strings.Cut(word, ":")
	bucketName, peek := strings.CutSuffix(bucketName, "?")
	limit, known := limits[bucketName]
	if !known || costs == peek {
		t.Fatalf("take %q: want bucket:cost or bucket?, and a limit for the bucket", word)
	}
	took := bucket.Take{Key: key(bucketName), Limit: limit}
	back, refund := strings.CutPrefix(amount, "-")
	switch {
	case peek:
		took.Need = 1
	case refund:
		took.Refund = parseNumber(t, back)
	default:
		took.Cost = parseNumber(t, amount)
	}
	for option := range strings.SplitSeq(options, "/") {
		switch option {
		case "":
		case "shadow":
			took.Role = bucket.Shadow
		case "quota":
			took.Role = bucket.Quota
		case "counted":
			took.CountDenied = true
		default:
			t.Fatalf("take %q: unknown option %q", word, option)
		}
	}
	return took
}

func parseNumber(t *testing.T, s string) uint64 {
	t.Helper()
	if s == "2^64-1" {
		return 1<<64 - 1
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseDuration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// readScripts reads the cases. Several spaces within a line become one, so that a file can have columns.
func readScripts(t *testing.T) []script {
	t.Helper()
	files, err := fs.Glob(caseFiles, "cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases embedded (%v)", err)
	}
	var scripts []script
	for _, file := range files {
		text, err := caseFiles.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, cut(t, file, string(text))...)
	}
	return scripts
}

// cut returns the cases of a file.
func cut(t *testing.T, file, text string) []script {
	t.Helper()
	var scripts []script
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		title, starts := strings.CutPrefix(line, "== ")
		switch {
		case line == "" || line[0] == '#':
		case starts:
			scripts = append(scripts, script{file: file, title: title})
		case len(scripts) == 0:
			t.Fatalf("%s: %q precedes the first case", file, line)
		default:
			last := &scripts[len(scripts)-1]
			last.lines = append(last.lines, line)
		}
	}
	return scripts
}

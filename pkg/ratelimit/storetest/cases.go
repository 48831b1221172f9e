package storetest

import (
	"fmt"
	"os"
	"path/filepath"
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
//	2m a:1 x 40 every 20ms -> 27 allowed 13 denied a!0 reset 18s    40 requests; what follows is of the last one
//
// A take may have the suffixes /shadow, /quota and /counted (denials are charged). Retry, and the
// reset and next (the time until more units remain) of the last take, are compared only if a line has them.

// epoch is time 0 of the cases. It is midnight, so that windows of up to a day begin there.
var epoch = time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)

// script is one case.
type script struct {
	file, title string
	lines       []string
	algorithms  []bucket.Algorithm // those for which it runs
}

// Cases runs the cases of cases/*.txt and those of bucket/testdata/<algorithm>.txt with a store.
func Cases(t *testing.T, store Store) {
	t.Helper()
	run := keyspace(t)
	for _, s := range readScripts(t) {
		t.Run(s.title, func(t *testing.T) {
			for _, algorithm := range s.algorithms {
				t.Run(algorithm.String(), func(t *testing.T) { s.run(t, store, run, algorithm) })
			}
		})
	}
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
		var at, every time.Duration
		var before verdicts // on the requests that a line repeats
		for n := 0; n < len(lines) && (n == 0 || strings.HasPrefix(lines[n], "&")); n++ {
			sent, _, _ := strings.Cut(lines[n], "->")
			sent, repeated, _ := strings.Cut(sent, " x ")
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
			if times := strings.Fields(repeated); len(times) > 0 {
				if len(times) > 1 {
					every = parseDuration(t, times[2])
				}
				for range parseNumber(t, times[0]) - 1 {
					before.add(take(t, store, r)[0])
					r.At += every.Microseconds()
				}
			}
			batch = append(batch, r)
		}
		for n, o := range take(t, store, batch...) {
			got = append(got, transcript(lines[n], batch[n].Takes, o, before))
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

// verdicts count how often requests were allowed and denied.
type verdicts struct{ allowed, denied int }

func (v *verdicts) add(o bucket.Outcome) {
	if o.Allowed {
		v.allowed++
	} else {
		v.denied++
	}
}

// transcript returns the line with the store's answer, and with the verdicts on the requests before it.
func transcript(line string, takes []bucket.Take, o bucket.Outcome, all verdicts) string {
	sent, wanted, _ := strings.Cut(line, "->")
	var b strings.Builder
	b.WriteString(sent + "-> ")
	if o.Err != nil {
		b.WriteString("error: " + o.Err.Error())
		return b.String()
	}
	switch all.add(o); {
	case all.denied == 0:
		b.WriteString("allowed")
	case all.allowed == 0:
		b.WriteString("denied")
	default:
		fmt.Fprintf(&b, "%d allowed %d denied", all.allowed, all.denied)
	}
	show := func(field string, micros int64) {
		switch {
		case !strings.Contains(wanted, field):
		case micros == bucket.Never:
			b.WriteString(field + "never")
		default:
			b.WriteString(field + (time.Duration(micros) * time.Microsecond).String())
		}
	}
	show(" retry ", o.RetryAfter)
	var last bucket.Decision
	for i, took := range takes {
		verdict := "!"
		if last = o.Decisions[i]; last.Allowed {
			verdict = "="
		}
		bucketName := took.Key[strings.LastIndex(took.Key, "/")+1:]
		fmt.Fprintf(&b, " %s%s%d", bucketName, verdict, last.Remaining)
	}
	show(" reset ", last.ResetAfter)
	show(" next ", last.NextIn)
	return b.String()
}

// parseLimit reads `10/1h`, `10/1h burst 5`, `10/1h token_bucket` or `10/1h token_bucket burst 5`.
func parseLimit(t *testing.T, words []string, algorithm bucket.Algorithm) bucket.Limit {
	t.Helper()
	requests, window, _ := strings.Cut(words[0], "/")
	limit := bucket.Limit{Algorithm: algorithm, Window: parseDuration(t, window).Microseconds(),
		Requests: int64(parseNumber(t, requests))}
	limit.Burst = limit.Requests
	if len(words) > 1 && words[1] != "burst" {
		if err := limit.Algorithm.UnmarshalText([]byte(words[1])); err != nil {
			t.Fatal(err)
		}
	}
	if i := slices.Index(words, "burst"); i > 0 {
		limit.Burst = int64(parseNumber(t, words[i+1]))
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

// readScripts reads the cases. Those in the file of an algorithm run for that algorithm, those that name an algorithm
// with each limit run once, and all others for each algorithm.
func readScripts(t *testing.T) (scripts []script) {
	t.Helper()
	read := func(file string, only ...bucket.Algorithm) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range cut(t, file, string(text)) {
			if s.algorithms = only; only == nil && slices.ContainsFunc(s.lines, isGeneral) {
				s.algorithms = bucket.Algorithms
			} else if only == nil {
				s.algorithms = []bucket.Algorithm{0}
			}
			scripts = append(scripts, s)
		}
	}
	root := filepath.Join(moduleRoot(), "pkg", "ratelimit")
	files, err := filepath.Glob(filepath.Join(root, "storetest", "cases", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s (%v)", root, err)
	}
	for _, file := range files {
		read(file)
	}
	for _, algorithm := range bucket.Algorithms {
		read(filepath.Join(root, "bucket", "testdata", algorithm.String()+".txt"), algorithm)
	}
	return scripts
}

// isGeneral reports whether a line is a limit without an algorithm.
func isGeneral(line string) bool {
	return strings.HasPrefix(line, "limit ") && len(strings.Fields(line)) == 3
}

// cut returns the cases of a file. Several spaces within a line become one, so that a file can have columns.
func cut(t *testing.T, file, text string) (scripts []script) {
	t.Helper()
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

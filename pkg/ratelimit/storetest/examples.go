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

// Examples runs the examples of bucket/testdata/<algorithm>.txt with a store. They show the answers of one bucket.
//
//	== the title of a case                                         a new bucket
//	limit 10/1m burst 20 counted                                   its limit; counted: denials are charged
//	12:00:15      take 1  -> denied, remaining 0, retry 4.5s       a request of this cost at this time of day; the answer
//	12:00:15      peek    -> allowed, remaining 3, reset 1m45s     a peek: allowed if one unit remains
//	12:00:16.5    give 2  -> allowed, remaining 5, next 500ms      a refund of 2
//	12:00:17      take 1 x 40 every 20ms -> 27 allowed, 13 denied  40 requests; other fields are of the last answer
//
// Retry, reset and next (the time until more units remain) are compared only if a line has them.
func Examples(t *testing.T, store Store) {
	t.Helper()
	run := keyspace(t)
	for _, algorithm := range bucket.Algorithms {
		name := filepath.Join(moduleRoot(t), "pkg", "ratelimit", "bucket", "testdata", algorithm.String()+".txt")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range cut(t, name, string(text)) {
			t.Run(algorithm.String()+"/"+s.title, func(t *testing.T) {
				e := example{store: store, key: fmt.Sprintf("%s/%s/%s", run, algorithm, s.title), algorithm: algorithm}
				var got []string
				for _, line := range s.lines {
					got = append(got, e.line(t, line))
				}
				if !slices.Equal(s.lines, got) {
					t.Errorf("%s: %s (-want +got):\n%s", filepath.Base(name), s.title, sideBySide(s.lines, got))
				}
			})
		}
	}
}

// example is the bucket of one case.
type example struct {
	store     Store
	key       string
	algorithm bucket.Algorithm
	limit     bucket.Limit
	counted   bool
}

// line executes a line and returns it with the store's answer.
func (e *example) line(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	if words[0] == "limit" {
		e.counted = words[len(words)-1] == "counted"
		if e.counted {
			words = words[:len(words)-1]
		}
		e.limit = parseLimit(t, slices.Insert(words[1:], 1, e.algorithm.String()), e.algorithm)
		return line
	}
	sent, wanted, _ := strings.Cut(line, " -> ")
	words = strings.Fields(sent)
	at := epoch.Add(parseTime(t, words[0]))
	take := bucket.Take{Key: e.key, Limit: e.limit, CountDenied: e.counted}
	times, every := 1, time.Duration(0)
	for i, word := range words {
		switch word {
		case "take":
			take.Cost = parseNumber(t, words[i+1])
		case "give":
			take.Refund = parseNumber(t, words[i+1])
		case "peek":
			take.Need = 1
		case "x":
			times = int(parseNumber(t, words[i+1]))
		case "every":
			every = parseDuration(t, words[i+1])
		}
	}
	var last bucket.Outcome
	var verdicts [2]int
	for i := range times {
		r := bucket.Request{At: at.Add(time.Duration(i) * every).UnixMicro()}
		r.Add(take)
		last = takeContext(t.Context(), t, e.store, r)[0]
		if last.Err != nil {
			return sent + " -> error: " + last.Err.Error()
		}
		if last.Allowed {
			verdicts[0]++
		} else {
			verdicts[1]++
		}
	}
	return sent + " -> " + describe(t, wanted, verdicts, last)
}

// describe returns the fields of the answer that the wanted answer has.
func describe(t *testing.T, wanted string, verdicts [2]int, o bucket.Outcome) string {
	t.Helper()
	d := o.Decisions[0]
	var fields []string
	switch {
	case verdicts[1] == 0:
		fields = append(fields, "allowed")
	case verdicts[0] == 0:
		fields = append(fields, "denied")
	default:
		fields = append(fields, fmt.Sprintf("%d allowed, %d denied", verdicts[0], verdicts[1]))
	}
	for field := range strings.SplitSeq(wanted, ", ") {
		name, value, _ := strings.Cut(field, " ")
		switch name {
		case "remaining":
			fields = append(fields, "remaining "+strconv.FormatInt(d.Remaining, 10))
		case "retry":
			fields = append(fields, "retry "+duration(t, value, o.RetryAfter))
		case "reset":
			fields = append(fields, "reset "+duration(t, value, d.ResetAfter))
		case "next":
			fields = append(fields, "next "+duration(t, value, d.NextIn))
		}
	}
	return strings.Join(fields, ", ")
}

// duration returns wanted if it means the same duration, else the duration in Go's form.
func duration(t *testing.T, wanted string, micros int64) string {
	t.Helper()
	if micros == bucket.Never {
		return "never"
	}
	d := time.Duration(micros) * time.Microsecond
	if wanted != "never" && parseDuration(t, wanted) == d {
		return wanted
	}
	return d.String()
}

// parseTime reads a time of day: 1:00:30 or 12:00:15.000001.
func parseTime(t *testing.T, s string) time.Duration {
	t.Helper()
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		t.Fatalf("%q is not a time of day", s)
	}
	return parseDuration(t, parts[0]+"h"+parts[1]+"m"+parts[2]+"s")
}

package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// plainWalk is a case of single.jsonl or multi.jsonl (testdata/vectors/README.md).
type plainWalk struct {
	ID      string
	Buckets []plainBucket
	Steps   []plainStep

	// single.jsonl has this one bucket in place of the list.
	plainBucket
}

type plainBucket struct {
	Algo bucket.Algorithm
	Mode string
	L, B int64
	W    int64
}

type plainStep struct {
	T       int64
	C       uint64
	Checks  [][2]uint64 // bucket and cost
	Results map[int]plainResult
	Set     *struct{ L, B int64 }

	plainResult
}

type plainResult struct {
	Allow      bool
	Remaining  int64
	RetryAfter int64 `json:"retry_after_us"`
	ResetAfter int64 `json:"reset_after_us"`
	ExpireAt   int64 `json:"expire_at_us"` // null in the file for 0
}

// calendarCase is a case of calendar.jsonl: at T, the window of the unit in the zone is [Start, End).
type calendarCase struct {
	Zone, Unit    string
	T, Start, End int64
}

// walk returns the case as requests with a limit of 1. The last one of the window before passes, and so do the first
// one of the window and of the next. All between them are denied.
func (c calendarCase) walk() (walk, error) {
	calendar, err := bucket.CalendarNamed(c.Unit + "@" + c.Zone)
	w := walk{
		ID:      fmt.Sprintf("calendar/%s/%s/%d", c.Zone, c.Unit, c.T),
		Buckets: []walkBucket{{Algo: bucket.CalendarWindow, W: 86_400_000_000, Calendar: calendar}},
	}
	for _, at := range []int64{c.Start - 1, c.Start, c.T, c.End - 1, c.End} {
		last := len(w.Steps) - 1
		if last >= 0 && at <= w.Steps[last].T { // T is one of the others
			continue
		}
		s := step{T: at, OK: at <= c.Start || at == c.End, Takes: []walkTake{{Requests: 1, Cost: 1}}}
		end := c.End
		if at < c.Start {
			end = c.Start
		}
		if !s.OK {
			s.RA = end - at
		}
		r := result{verdict(s.OK), 0, s.RA, end - at, end - at, end}
		if at == c.End {
			r[resetAfterIndex], r[nextInIndex], r[expireAtIndex] = notCompared, notCompared, notCompared
		}
		s.Res = []result{r}
		w.Steps = append(w.Steps, s)
	}
	return w, err
}

// walk returns the case in the form of requests.jsonl.
func (p plainWalk) walk() walk {
	single := len(p.Buckets) == 0
	if single {
		p.Buckets = []plainBucket{p.plainBucket}
	}
	w := walk{ID: p.ID}
	for _, b := range p.Buckets {
		w.Buckets = append(w.Buckets, walkBucket{Algo: b.Algo, W: b.W})
	}
	for _, s := range p.Steps {
		if s.Set != nil {
			p.Buckets[0].L, p.Buckets[0].B = s.Set.L, s.Set.B
			continue
		}
		if single {
			s.Checks, s.Results = [][2]uint64{{0, s.C}}, map[int]plainResult{0: s.plainResult}
		}
		next := step{T: s.T, OK: s.Allow, RA: s.RetryAfter}
		for _, c := range s.Checks {
			bucket, cost := int(c[0]), c[1]
			b := p.Buckets[bucket]
			t := walkTake{Bucket: bucket, Requests: b.L, Burst: b.B, Cost: cost}
			if b.Mode == "count" {
				t.Counted = 1
			}
			next.Takes = append(next.Takes, t)
			if r, ok := s.Results[bucket]; ok { // the results are those of buckets, in the order of their first checks
				delete(s.Results, bucket)
				next.Res = append(next.Res, result{
					verdict(r.Allow), r.Remaining, r.RetryAfter, r.ResetAfter, notCompared, r.ExpireAt, notCompared,
				})
			}
		}
		w.Steps = append(w.Steps, next)
	}
	return w
}

// Vectors runs all cases of testdata/vectors with a store, and those of the directory in the variable VECTORS, if set.
func Vectors(t *testing.T, store Store) {
	t.Helper()
	runVectors(t, store, readVectors(t))
}

func runVectors(t *testing.T, store Store, all []walk) {
	t.Helper()
	run := keyspace(t)
	for _, w := range all {
		t.Run(strings.ReplaceAll(w.ID, "/", "-"), func(t *testing.T) { w.run(t, store, run) })
	}
}

func readVectors(t *testing.T) (walks []walk) {
	t.Helper()
	dirs := []string{filepath.Join(moduleRoot(), "testdata", "vectors")}
	if more := os.Getenv("VECTORS"); more != "" {
		dirs = append(dirs, more)
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no *.jsonl in %s (%v)", dir, err)
		}
		for _, file := range files {
			walks = append(walks, readFile(t, file)...)
		}
	}
	return walks
}

func readFile(t *testing.T, name string) (walks []walk) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		w, err := parseWalk(line)
		if err != nil {
			t.Fatalf("%s:%d: %v", name, len(walks)+1, err)
		}
		if w.Buckets[0].Calendar != nil { // some cases are there twice
			w.ID += fmt.Sprint("/", len(walks))
		}
		walks = append(walks, w)
	}
	return walks
}

// parseWalk reads a line. Only the steps of requests.jsonl have takes.
func parseWalk(line []byte) (walk, error) {
	var w walk
	if err := json.Unmarshal(line, &w); err != nil || len(w.Steps) > 0 && w.Steps[0].Takes != nil {
		w.mixed = true
		if w.Kind == "holds" { // the results of its steps end with the units and number of live holds
			for _, s := range w.Steps {
				for i, r := range s.Res {
					r[unitsIndex], r[numberIndex] = r[expireAtIndex], r[delayIndex]
					r[expireAtIndex], r[delayIndex] = notCompared, notCompared
					s.Res[i] = r
				}
			}
		}
		return w, err
	}
	var c calendarCase
	if err := json.Unmarshal(line, &c); err != nil || c.Zone != "" {
		calendar, noZone := c.walk()
		return calendar, cmp.Or(err, noZone)
	}
	var p plainWalk
	err := json.Unmarshal(line, &p)
	return p.walk(), err
}

// moduleRoot returns the directory of the module, which the test was compiled from.
func moduleRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// keyspace returns a prefix of keys that no other run uses, because a store may keep its buckets after a test.
func keyspace(t *testing.T) string {
	t.Helper()
	return t.Name() + strconv.FormatInt(int64(os.Getpid()), 36) + strconv.FormatInt(time.Now().UnixNano(), 36)
}

package storetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// A walk is one case of the vectors (testdata/vectors/README.md): a sequence of requests to new buckets.
type walk struct {
	ID      string
	Buckets []vectorBucket
	Steps   []step

	// single.jsonl has this one bucket in place of the list.
	vectorBucket
}

type vectorBucket struct {
	Algo bucket.Algorithm
	Mode string
	L, B int64
	W    int64
}

type step struct {
	T       int64
	C       uint64
	Checks  []check
	Results map[string]result
	Set     *struct{ L, B int64 }

	result
}

type check struct {
	Bucket int
	Cost   uint64
}

// UnmarshalJSON reads [bucket, cost].
func (c *check) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&c.Bucket, &c.Cost})
}

type result struct {
	Allow      bool
	Remaining  int64
	RetryAfter int64  `json:"retry_after_us"`
	ResetAfter int64  `json:"reset_after_us"`
	ExpireAt   *int64 `json:"expire_at_us"`
}

// Vectors runs all cases of testdata/vectors with a store, and those of the directory in the variable VECTORS, if set.
func Vectors(t *testing.T, store Store) {
	t.Helper()
	runVectors(t, store, readVectors(t))
}

func runVectors(t *testing.T, store Store, all []vector) {
	t.Helper()
	run := keyspace(t)
	for _, v := range all {
		t.Run(strings.ReplaceAll(v.name(), "/", "-"), func(t *testing.T) { v.run(t, store, run) })
	}
}

// vector is one case: a line of a file.
type vector interface {
	name() string
	run(t *testing.T, store Store, run string)
}

func (w walk) name() string { return w.ID }

func (w walk) run(t *testing.T, store Store, run string) {
	single := len(w.Buckets) == 0
	if single {
		w.Buckets = []vectorBucket{w.vectorBucket}
	}
	for i, s := range w.Steps {
		if s.Set != nil {
			w.Buckets[0].L, w.Buckets[0].B = s.Set.L, s.Set.B
			continue
		}
		if single {
			s.Checks = []check{{0, s.C}}
			s.Results = map[string]result{"0": s.result}
		}
		r := bucket.Request{At: s.T}
		for _, c := range s.Checks {
			r.Add(w.Buckets[c.Bucket].take(t, fmt.Sprintf("%s/%s/%d", run, w.ID, c.Bucket), c.Cost))
		}
		o := take(t, store, r)[0]
		if o.Err != nil {
			t.Fatalf("step %d: %v", i, o.Err)
		}
		if o.Allowed != s.Allow || o.RetryAfter != s.RetryAfter {
			t.Fatalf("step %d: allowed %t, retry after %d; want %t, %d",
				i, o.Allowed, o.RetryAfter, s.Allow, s.RetryAfter)
		}
		for k, take := range r.Takes {
			name := take.Key[strings.LastIndex(take.Key, "/")+1:]
			if diff := cmp.Diff(s.Results[name], resultOf(o.Decisions[k])); diff != "" {
				t.Fatalf("step %d (t=%d), bucket %s (-want +got):\n%s", i, s.T, name, diff)
			}
		}
	}
}

func (b vectorBucket) take(t *testing.T, key string, cost uint64) bucket.Take {
	t.Helper()
	limit := bucket.Limit{Algorithm: b.Algo, Requests: b.L, Window: b.W, Burst: b.B}
	if err := limit.Check(); err != nil {
		t.Fatalf("the vectors have an invalid limit: %v", err)
	}
	return bucket.Take{Key: key, Limit: limit, Cost: cost, CountDenied: b.Mode == "count"}
}

func resultOf(d bucket.Decision) result {
	r := result{Allow: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	if d.ExpireAt != 0 {
		r.ExpireAt = &d.ExpireAt
	}
	return r
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	dirs := []string{filepath.Join(moduleRoot(t), "testdata", "vectors")}
	if more := os.Getenv("VECTORS"); more != "" {
		dirs = append(dirs, more)
	}
	var vectors []vector
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no *.jsonl in %s (%v)", dir, err)
		}
		for _, file := range files {
			vectors = append(vectors, readFile(t, file)...)
		}
	}
	return vectors
}

func readFile(t *testing.T, name string) []vector {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var vectors []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for n := 1; lines.Scan(); n++ {
		v, err := parseVector(lines.Bytes())
		if err != nil {
			t.Fatalf("%s:%d: %v", name, n, err)
		}
		vectors = append(vectors, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return vectors
}

// parseVector reads a line. Only the steps of requests.jsonl have takes.
func parseVector(line []byte) (vector, error) {
	var form struct {
		Steps []struct{ Takes json.RawMessage }
	}
	if err := json.Unmarshal(line, &form); err != nil {
		return nil, err
	}
	if len(form.Steps) > 0 && form.Steps[0].Takes != nil {
		var w requestWalk
		err := json.Unmarshal(line, &w)
		return w, err
	}
	var w walk
	err := json.Unmarshal(line, &w)
	return w, err
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

// keyspace returns a prefix of keys that no other run of a test uses, because a store may keep its buckets after a
// test.
func keyspace(t *testing.T) string {
	t.Helper()
	return t.Name() + strconv.FormatInt(int64(os.Getpid()), 36) + strconv.FormatInt(time.Now().UnixNano(), 36)
}

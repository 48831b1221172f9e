package service

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestCompatibility runs testdata/compatibility/*.txt: rules, requests and their answers, as messages of Envoy's rate
// limit service. With COMPATIBILITY=strict, the answers are those of envoyproxy/ratelimit. Each file runs in both modes
// and with both stores. It is a txtar archive of rules.yaml, optional settings, and requests:
//
//	<time> <descriptor> | <descriptor> ... => <answer>
//	normal => <the answer without COMPATIBILITY=strict, if it differs>
//
// An indented line continues the one above. A descriptor is key=value entries joined by ">", or "-" for none. It may
// have hits=N (hits_addend), refund (is_negative_hits), and limit=N/unit or limit=N/unit*M. It may set domain=D and
// request_hits=N of the request. "nothing" is a request without descriptors.
//
// The answer begins with its overall code. After a colon it has a status for each descriptor: ok or over, what remains
// of the limit, the limit's name, and the seconds until the reset. A status without a limit is ok or unlimited.
// Headers, dynamic metadata and headers for the upstream follow after semicolons.
//
// The settings are variables. Unless a file sets them, DEFAULT_ALGORITHM is fixed_window, and RESPONSE_HEADERS and
// RESPONSE_BODY are off. So a file shows one difference only. A variable without a value has its default.
func TestCompatibility(t *testing.T) {
	const least = 150
	files, err := filepath.Glob("testdata/compatibility/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	redis, requests := testenv.Redis(t), 0
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := newComparison(t, archive)
		requests += len(c.steps)
		for _, mode := range []string{"strict", "default"} {
			for _, store := range []string{"memory", "redis"} {
				test := strings.TrimSuffix(filepath.Base(name), ".txt") + "/" + mode + "/" + store
				t.Run(test, func(t *testing.T) {
					backend := map[string]string{"CACHE_KEY_PREFIX": test}
					if store == "redis" {
						backend["REDIS_URL"] = redis.Addr
					}
					c.run(t, mode, backend)
				})
			}
		}
	}
	if requests < least {
		t.Errorf("found %d requests in %d files, want at least %d", requests, len(files), least)
	}
}

// comparison is one file.
type comparison struct {
	rules    []byte
	settings map[string]string
	steps    []comparedRequest
}

func newComparison(t *testing.T, archive *txtar.Archive) (c comparison) {
	t.Helper()
	for _, f := range archive.Files {
		switch f.Name {
		case "rules.yaml":
			c.rules = f.Data
		case "settings":
			c.settings = map[string]string{}
			for _, pair := range strings.Fields(string(f.Data)) {
				name, value, _ := strings.Cut(pair, "=")
				c.settings[name] = value
			}
		case "requests":
			c.steps = parseRequests(t, string(f.Data))
		default:
			t.Fatalf("unknown file %q", f.Name)
		}
	}
	return c
}

// at gives the time of a test to a store that has a clock of its own.
type at struct {
	ratelimit.Store

	now *atomic.Int64
}

func (s at) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	for i := range requests {
		requests[i].At = s.now.Load()
	}
	ratelimit.Take(ctx, s.Store, requests, outcomes)
}

// run sends the requests in one mode, with a new store.
func (c comparison) run(t *testing.T, mode string, store map[string]string) {
	env := map[string]string{"DEFAULT_ALGORITHM": "fixed_window", "RESPONSE_HEADERS": "off", "RESPONSE_BODY": "off"}
	for _, more := range []map[string]string{c.settings, store, {"COMPATIBILITY": mode}} {
		maps.Copy(env, more)
	}
	maps.DeleteFunc(env, func(_, value string) bool { return value == "" })
	testenv.Setenv(t, env)
	s, err := settings.Read()
	if err != nil {
		t.Fatal(err)
	}
	set, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: c.rules}}, RuleConfig(s))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	live := newLive(s)
	live.Activate(set, nil)
	var now atomic.Int64 // the memory store also reads it in the background
	memory, err := memstore.New(memstore.Config{Clock: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	deciding := decisions(s, live)
	deciding.Store, deciding.Fallback, deciding.Clock = memory, memory, now.Load
	deciding.Now = func() time.Time { return time.UnixMicro(now.Load()) }
	if s.UsesRedis() {
		redis, err := redisstore.New(redisstore.Config{URL: s.Redis.Main.URL, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = redis.Close() })
		deciding.Store = at{redis, &now}
	}
	server := flow.New(flow.Config{
		Limiter: ratelimit.New(deciding), RateLimit: codec(s), Queue: flow.NewQueue(1), Patience: patience(s),
		Calls: telemetry.NewCalls(prometheus.NewRegistry()), Panicked: func(where string, value any) {
			t.Error(where, value)
		},
	})
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // the edge of a minute, an hour, a day and a week
	for _, step := range c.steps {
		now.Store(begin.Add(step.after).UnixMicro())
		message, err := proto.Marshal(step.request)
		if err != nil {
			t.Fatal(err)
		}
		if got := describeAnswer(t, server, string(message)); got != step.want[mode] {
			t.Errorf("%s\n got %s\nwant %s", step.line, got, step.want[mode])
		}
	}
}

package flow

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// authorizer is a function as an Authorizer.
type authorizer func(ctx context.Context, r *authz.Request) authz.Decision

func (f authorizer) Begin(ctx context.Context, r *authz.Request, p *authz.Pending) {
	d := f(ctx, r)
	d.ToUpstream, d.Remove, d.ToClient = slices.Clone(d.ToUpstream), slices.Clone(d.Remove), slices.Clone(d.ToClient)
	p.Decision = d
}

func (f authorizer) BeginNow(r *authz.Request, p *authz.Pending) bool {
	f.Begin(context.Background(), r, p)
	return true
}

func (authorizer) Finish(*authz.Pending, *ratelimit.Result) {}

// newCheckFlow returns a flow with an authorizer. Missing settings get values that have no effect.
func newCheckFlow(t testing.TB, cfg Config) *Flow {
	t.Helper()
	cfg.Limiter = ratelimit.New(ratelimit.Config{})
	cfg.HTTP.Log = cmp.Or(cfg.HTTP.Log, slog.New(slog.DiscardHandler))
	cfg.Queue = cmp.Or(cfg.Queue, NewQueue(1000))
	cfg.HTTP.Timeout = cmp.Or(cfg.HTTP.Timeout, time.Minute)
	if cfg.HTTP.NeedsAddress == nil {
		cfg.HTTP.NeedsAddress = func() bool { return false }
	}
	cfg.Calls = telemetry.NewCalls(prometheus.NewRegistry())
	cfg.Panicked = func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) }
	return New(cfg)
}

// checkPath returns the outcome of a check of a path.
func checkPath(ctx context.Context, f *Flow, path string) string {
	message, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Path: path}},
	}})
	if err != nil {
		return err.Error()
	}
	reply, err := f.Answer(ctx, Check, string(message), http.Header{})
	res := new(authv3.CheckResponse)
	if err == nil {
		err = proto.Unmarshal(reply, res)
	}
	return outcome(res, err)
}

// delayed allows a request with the delay that is its path.
func delayed(_ context.Context, r *authz.Request) authz.Decision {
	d, err := time.ParseDuration(r.Path)
	if err != nil {
		return authz.Decision{}
	}
	return authz.Decision{Verdict: authz.Allowed, Delay: d.Microseconds()}
}

func outcome(res *authv3.CheckResponse, err error) string {
	switch {
	case err != nil:
		return status.FromContextError(err).Code().String()
	case res.GetOkResponse() != nil:
		return "allowed"
	case res.GetErrorResponse() != nil:
		return "undecided"
	}
	return "refused"
}

// TestHeldAnswersLeaveInOrder has requests with the delays of a bucket that allows one in 100 ms.
func TestHeldAnswersLeaveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewQueue(10)
		server := newCheckFlow(t, Config{Authorizer: authorizer(delayed), Queue: queue})
		begin := time.Now()
		left := make(chan time.Duration, 10)
		for _, path := range []string{"300ms", "0ms", "100ms", "400ms", "200ms"} {
			go func() { // ends with its answer
				if got := checkPath(t.Context(), server, path); got != "allowed" {
					t.Errorf("%s: got %s", path, got)
				}
				left <- time.Since(begin)
			}()
		}
		for i := range 5 {
			if got, want := <-left, time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("answer %d left after %v, want %v", i, got, want)
			}
		}
		held, delayed, notHeld := queue.Held.Load(), queue.Delayed.Load(), queue.NotHeld.Load()
		if held != 0 || delayed != 4 || notHeld != 0 {
			t.Errorf("afterwards: %d held, %d delayed, %d not held; want 0, 4, 0", held, delayed, notHeld)
		}
	})
}

func TestHoldIsBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		held    int // the number of held answers, of at most 2
		timeout time.Duration
		path    string
		want    string
		after   time.Duration
	}{
		{"there is room and time", 1, time.Second, "500ms", "allowed", 500 * time.Millisecond},
		{"there is no room", 2, time.Second, "500ms", "undecided", 0},
		{"no room is needed", 2, time.Second, "0ms", "allowed", 0},
		{"there is no time", 0, 200 * time.Millisecond, "200ms", "undecided", 0},
		{"just in time", 0, 200 * time.Millisecond, "199ms", "allowed", 199 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newCheckFlow(t, Config{Authorizer: authorizer(delayed), Queue: NewQueue(2)})
				for range c.held {
					go func() { // ends with its answer
						checkPath(t.Context(), server, "1h")
					}()
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				begin := time.Now()
				if got := checkPath(ctx, server, c.path); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if got := time.Since(begin); got != c.after {
					t.Errorf("after %v, want %v", got, c.after)
				}
			})
		})
	}
}

// TestEnvoyGivesUp checks that an answer is held no longer when its caller has gone.
func TestEnvoyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewQueue(10)
		server := newCheckFlow(t, Config{Authorizer: authorizer(delayed), Queue: queue})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(time.Second, cancel)
		if got := checkPath(ctx, server, "1h"); got != codes.Canceled.String() {
			t.Errorf("got %s, want Canceled", got)
		}
		if got := time.Since(begin); got != time.Second {
			t.Errorf("after %v, want 1 s", got)
		}
		if n := queue.Held.Load(); n != 0 {
			t.Errorf("afterwards: %d held", n)
		}
	})
}

// TestDeadline checks that the authorizer has the deadline of the caller. After the deadline, it is not asked.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		server := newCheckFlow(t, Config{Authorizer: authorizer(func(ctx context.Context, _ *authz.Request) authz.Decision {
			asked++
			<-ctx.Done()
			return authz.Decision{Verdict: authz.Undecided}
		})})
		const timeout = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		begin := time.Now()
		if got := checkPath(ctx, server, "/"); got != "undecided" {
			t.Errorf("got %s, want undecided", got)
		}
		if got := time.Since(begin); got != timeout {
			t.Errorf("after %v, want %v", got, timeout)
		}
		if got := checkPath(ctx, server, "/"); got != codes.DeadlineExceeded.String() || asked != 1 {
			t.Errorf("too late: got %s, asked %d times", got, asked)
		}
	})
}

// TestCallerHasGone checks that the authorizer is not asked for a caller that has gone.
func TestCallerHasGone(t *testing.T) {
	server := newCheckFlow(t, Config{Authorizer: authorizer(func(context.Context, *authz.Request) authz.Decision {
		t.Error("the authorizer is asked")
		return authz.Decision{}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := checkPath(ctx, server, "/"); got != codes.Canceled.String() {
		t.Errorf("got %s, want Canceled", got)
	}
}

// TestDecisionIsLogged: each answer of a check has one line, with what Envoy does not learn.
func TestDecisionIsLogged(t *testing.T) {
	var lines bytes.Buffer
	server := newCheckFlow(t, Config{
		Authorizer: authorizer(func(context.Context, *authz.Request) authz.Decision {
			return authz.Decision{Reason: reply.ReasonInvalid, Status: 403, ToClient: []reply.Header{{Name: "bad name"}}}
		}),
		Log: telemetry.NewDecisionLog(telemetry.DecisionLogConfig{Log: slog.New(slog.NewTextHandler(&lines, nil))}),
	})
	if got := checkPath(t.Context(), server, "/"); got != "refused" {
		t.Errorf("got %s, want refused", got)
	}
	line := lines.String()
	for _, want := range []string{"reason=" + string(reply.ReasonInvalid), "status=403", "dropped_headers=1"} {
		if strings.Count(line, want) != 1 || strings.Count(line, "\n") != 1 {
			t.Errorf("want one line with %s, got\n%s", want, line)
		}
	}
	if n := server.DroppedHeaders(); n != 1 {
		t.Errorf("DroppedHeaders is %d, want 1", n)
	}
}

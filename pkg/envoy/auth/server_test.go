package auth_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
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

// newServer returns a server with these settings. Missing ones get values that have no effect.
func newServer(cfg auth.Config) *auth.Server {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Queue = cmp.Or(cfg.Queue, hold.New(1000))
	cfg.HTTP.Timeout = cmp.Or(cfg.HTTP.Timeout, time.Minute)
	cfg.HTTP.Observe = func(authz.Verdict, time.Duration) {}
	if cfg.HTTP.NeedsAddress == nil {
		cfg.HTTP.NeedsAddress = func() bool { return false }
	}
	return auth.New(cfg)
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
		queue := hold.New(10)
		server := newServer(auth.Config{Authorizer: authorizer(delayed), Queue: queue})
		begin := time.Now()
		left := make(chan time.Duration, 10)
		for _, path := range []string{"300ms", "0ms", "100ms", "400ms", "200ms"} {
			go func() { // ends with its answer
				if got := outcome(server.Check(t.Context(), &authz.Request{Path: path})); got != "allowed" {
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
		if s := queue.Stats(); s != (hold.Stats{Delayed: 4}) {
			t.Errorf("afterwards: %+v", s)
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
		{"there is no time", 0, 200 * time.Millisecond, "198ms", "undecided", 0},
		{"just in time", 0, 200 * time.Millisecond, "197ms", "allowed", 197 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(auth.Config{Authorizer: authorizer(delayed), Queue: hold.New(2)})
				for range c.held {
					go func() { // ends with its answer
						_, _ = server.Check(t.Context(), &authz.Request{Path: "1h"})
					}()
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				begin := time.Now()
				if got := outcome(server.Check(ctx, &authz.Request{Path: c.path})); got != c.want {
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
		queue := hold.New(10)
		server := newServer(auth.Config{Authorizer: authorizer(delayed), Queue: queue})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(time.Second, cancel)
		if got := outcome(server.Check(ctx, &authz.Request{Path: "1h"})); got != codes.Canceled.String() {
			t.Errorf("got %s, want Canceled", got)
		}
		if got := time.Since(begin); got != time.Second {
			t.Errorf("after %v, want 1 s", got)
		}
		if s := queue.Stats(); s.Held != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

// TestDeadline checks that the authorizer's deadline is slightly before the caller's. After the caller's deadline, the
// authorizer is not asked.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		server := newServer(auth.Config{Authorizer: authorizer(func(ctx context.Context, _ *authz.Request) authz.Decision {
			asked++
			<-ctx.Done()
			return authz.Decision{Verdict: authz.Undecided}
		})})
		for _, c := range []struct{ timeout, want time.Duration }{
			{200 * time.Millisecond, 197 * time.Millisecond},
			{4 * time.Millisecond, 3 * time.Millisecond},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			begin := time.Now()
			if got := outcome(server.Check(ctx, &authz.Request{})); got != "undecided" {
				t.Errorf("got %s, want undecided", got)
			}
			if got := time.Since(begin); got != c.want {
				t.Errorf("of %v: after %v, want %v", c.timeout, got, c.want)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		if got := outcome(server.Check(ctx, &authz.Request{})); got != codes.DeadlineExceeded.String() || asked != 2 {
			t.Errorf("too late: got %s, asked %d times", got, asked)
		}
	})
}

// TestDecided: each answer is reported once, with what Envoy does not learn.
func TestDecided(t *testing.T) {
	var got []authz.Checked
	server := newServer(auth.Config{
		Authorizer: decided(authz.Decision{
			Reason: reply.ReasonInvalid, Status: 403, ToClient: []reply.Header{{Name: "bad name"}},
		}),
		Decided: func(_ context.Context, c authz.Checked) { got = append(got, c) },
	})
	r := &authz.Request{HTTP: true, Method: "GET", Host: "example.org", Path: "/"}
	if _, err := server.Check(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Request != r || got[0].Decision.Reason != reply.ReasonInvalid || got[0].Status != 403 ||
		got[0].DroppedHeaders != 1 || got[0].Query != nil {
		t.Errorf("got %+v", got)
	}
	if n := server.DroppedHeaders(); n != 1 {
		t.Errorf("DroppedHeaders is %d, want 1", n)
	}
}

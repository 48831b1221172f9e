package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
)

// plan returns a plan of 1,000 requests for a server.
func plan(t testing.TB, address string) Plan {
	t.Helper()
	m, err := RateLimit("d", []*descriptorv3.RateLimitDescriptor{{
		Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u-{key}"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return Plan{Address: address, Message: m, Client: Envoy, Keys: Keys{Uniform, 100}, Connections: 2, InFlight: 8,
		Count: 1000, Duration: MostDuration, Timeout: 20 * time.Second}
}

// TestAnswers checks that all forms of an answer are read, and what is not one is counted under its status.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const ok = `{"answers":1000}`
	for name, c := range map[string]struct {
		answer   func(p *peer, id uint32)
		settings []http2.Setting
		want     string
	}{
		"usual":           {allowed, nil, ok},
		"one at a time":   {allowed, []http2.Setting{{ID: http2.SettingHeaderTableSize, Val: 0}}, ok},
		"byte by byte":    {inBytes, nil, ok},
		"padded":          {padded, nil, ok},
		"in CONTINUATION": {continued, nil, ok},
		"with pings, unknown settings and windows": {busy, []http2.Setting{{ID: 99, Val: 1}}, ok},
		"over the limit":      {func(p *peer, id uint32) { p.message(id, 8, 2) }, nil, `{"answers":1000,"denied":1000}`},
		"fields out of order": {func(p *peer, id uint32) { p.message(id, 0x1a, 0, 8, 1) }, nil, ok},
		"reset":               {resets(http2.ErrCodeRefusedStream), nil, "Unavailable"},
		"cancelled":           {resets(http2.ErrCodeCancel), nil, "Canceled"},
		"an error":            {denied, nil, "Unavailable"},
		"not gRPC":            {only(":status", "404"), nil, "Unknown"},
		"no status":           {only(":status", "200"), nil, "Unknown"},
		"no message":          {only(":status", "200", "grpc-status", "0"), nil, "Internal"},
		"no code":             {func(p *peer, id uint32) { p.message(id) }, nil, "Internal"},
		"no protobuf":         {func(p *peer, id uint32) { p.message(id, 255) }, nil, "Internal"},
		"two messages":        {twice, nil, "Internal"},
		"compressed":          {func(p *peer, id uint32) { p.data(id, 1, 0, 0, 0, 2, 8, 1) }, nil, "Internal"},
		"too large":           {tooLarge, nil, "Internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first atomic.Bool
			s := serve(t, func(p *peer) {
				p.answerAll(func(p *peer, id uint32) {
					if first.CompareAndSwap(false, true) { // Run gives up without an answer to the first request
						allowed(p, id)
						return
					}
					c.answer(p, id)
				}, c.settings...)
			})
			r, err := Run(t.Context(), plan(t, s.address))
			if err != nil {
				t.Fatal(err)
			}
			if c.want[0] != '{' {
				if len(r.Failures) != 1 || r.Failures[0].Status != c.want || r.Errors != 1000 || r.Failures[0].Count != 1000 {
					t.Errorf("%+v, want 1000 failures with the status %s", r, c.want)
				}
				return
			}
			var want Result
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if r.Answers != want.Answers || r.Denied != want.Denied || r.Errors != 0 || r.Sent != 1000 {
				t.Errorf("%+v, want %s", r, c.want)
			}
		})
	}
}

// TestRefusals checks that Run ends with the reason if the first request has no answer.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, script := range map[string]func(*peer){
		"no HTTP/2 settings within":                         func(p *peer) { p.next() },
		"no answer to the first request: DeadlineExceeded":  func(p *peer) { p.answerAll(func(*peer, uint32) {}) },
		"does not answer: the server closed the connection": func(*peer) {},
		`the connection ended: the server closed the connection`: func(p *peer) {
			_ = p.WriteSettings()
			p.next()
		},
		`no answer to the first request: Unavailable: "closed"`: func(p *peer) { p.answerAll(denied) },
		"frame header looked like an HTTP/1.1 header": func(p *peer) {
			_, _ = p.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			p.next()
		},
		"the server takes 0 requests at a time": func(p *peer) {
			p.answerAll(allowed, http2.Setting{ID: http2.SettingMaxConcurrentStreams})
		},
		"less than the request of ": func(p *peer) {
			p.answerAll(allowed, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		},
		"PUSH_PROMISE": func(p *peer) {
			_ = p.WriteSettings()
			_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: p.next(), PromiseID: 2, EndHeaders: true})
			p.next()
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := plan(t, serve(t, script).address)
			if contains(want, "within") || contains(want, "DeadlineExceeded") {
				p.Timeout = 2 * time.Second // for the settings, which the other one sends
			}
			r, err := Run(t.Context(), p)
			if err == nil || !cmp.Equal(r, (*Result)(nil)) || !contains(err.Error(), want) {
				t.Errorf("%v, %v, want %q", r, err, want)
			}
		})
	}
}

// TestGoAway checks that no request is lost when the server sends GOAWAY in two steps, and that requests are counted
// which it has not processed.
func TestGoAway(t *testing.T) {
	t.Parallel()
	s := serve(t, func(p *peer) {
		n := 0
		p.answerAll(func(p *peer, id uint32) {
			if n++; n == 20 {
				_ = p.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
			}
			allowed(p, id)
		})
	})
	r, err := Run(t.Context(), plan(t, s.address))
	if err != nil || r.Answers != 1000 || r.Errors != 0 || r.Reconnects < 30 {
		t.Errorf("%+v, %v, want 1000 answers over at least 30 more connections", r, err)
	}

	s = serve(t, func(p *peer) {
		if p.number > 2 {
			p.answerAll(allowed)
			return
		}
		_ = p.WriteSettings()
		for range 3 {
			allowed(p, p.next())
		}
		_ = p.WriteGoAway(5, http2.ErrCodeNo, nil)
		p.next()
	})
	one := plan(t, s.address)
	one.Connections, one.InFlight = 1, 4
	r, err = Run(t.Context(), one)
	if err != nil || r.Errors == 0 || r.Total() != 1000 || r.Failures[0].Status != "Unavailable" {
		t.Errorf("%+v, %v, want some failures", r, err)
	}
}

// TestClosed checks that requests are counted which were in flight when the server closed the connection.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := serve(t, func(p *peer) {
		if p.number != 2 {
			p.answerAll(allowed)
			return
		}
		_ = p.WriteSettings()
		for range 10 {
			allowed(p, p.next())
		}
	})
	r, err := Run(t.Context(), plan(t, s.address))
	if err != nil || r.Errors < 1 || r.Errors > 4 || r.Total() != 1000 || r.Reconnects != 1 {
		t.Errorf("%+v, %v, want 1 to 4 failures and a reconnect", r, err)
	}
}

// TestStall checks that requests time out that a server never answers, and that the others are answered.
func TestStall(t *testing.T) {
	t.Parallel()
	s := serve(t, func(p *peer) {
		n := 0
		p.answerAll(func(p *peer, id uint32) {
			if n++; n != 5 {
				allowed(p, id)
			}
		})
	})
	p := plan(t, s.address)
	p.Timeout = 5 * time.Second
	r, err := Run(t.Context(), p)
	if err != nil || r.Errors != 2 || r.Total() != 1000 || r.Failures[0].Status != "DeadlineExceeded" {
		t.Errorf("%+v, %v, want a timeout on each of 2 connections", r, err)
	}
}

// TestOpenLoop checks that the latency counts from the time at which a request should have been sent. The server stalls
// once, with room for one request at a time.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	const stall = 250 * time.Millisecond
	s := serve(t, func(p *peer) {
		n := 0
		p.answerAll(func(p *peer, id uint32) {
			if n++; n == 2 {
				<-time.After(stall)
			}
			allowed(p, id)
		}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	})
	p := plan(t, s.address)
	p.Rate, p.Count, p.Connections, p.InFlight = 1000, 500, 1, 1
	r, err := Run(t.Context(), p)
	// 250 requests should have been sent during the stall. Half of them waited for more than half of it.
	if err != nil || r.Answers != 500 || r.Errors+r.Unsent != 0 || r.Latency.P99 < float64(stall.Microseconds())/2 {
		t.Errorf("%+v, %v, want 500 answers and a p99 of at least half the stall", r, err)
	}
	// One that is much too slow.
	p.Duration, p.Count, p.Rate = 200*time.Millisecond, 0, MostRate
	r, err = Run(t.Context(), p)
	if err != nil || r.Sent+r.Unsent != MostRate/5 || r.Unsent == 0 || r.Sent != r.Total() {
		t.Errorf("%+v, %v, want %d requests, most of them not sent", r, err, MostRate/5)
	}
}

// TestInterrupt checks that the result so far is returned when the context is done.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := serve(t, func(p *peer) { p.answerAll(allowed) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := plan(t, s.address)
	p.Count = 0
	p.Progress = func(state Progress) {
		if state.Answers > 0 {
			cancel()
		}
	}
	r, err := Run(ctx, p)
	if err != nil || !r.Interrupted || r.Answers == 0 || r.Errors != 0 || r.Server != nil {
		t.Errorf("%+v, %v, want answers until the interrupt", r, err)
	}
}

// TestInterruptOfASilentServer checks that nothing waits for answers when the context is done.
func TestInterruptOfASilentServer(t *testing.T) {
	t.Parallel()
	for name, silentFrom := range map[string]uint32{"first request": 1, "later requests": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var requests atomic.Uint32
			s := serve(t, func(p *peer) {
				p.answerAll(func(p *peer, id uint32) {
					if n := requests.Add(1); n < silentFrom {
						allowed(p, id)
					} else if n == silentFrom {
						cancel()
					}
				})
			})
			p := plan(t, s.address)
			p.Count, p.Duration, p.Timeout = 0, time.Hour, time.Minute
			r, err := Run(ctx, p) // a request that is awaited until its timeout is an error
			if first := silentFrom == 1; first && !errors.Is(err, context.Canceled) ||
				!first && (err != nil || !r.Interrupted || r.Answers == 0 || r.Errors != 0) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestGet checks that a GET has its key in a header, and that its answer is the status.
func TestGet(t *testing.T) {
	t.Parallel()
	s := serve(t, func(p *peer) {
		_ = p.WriteSettings()
		for {
			frame, err := p.ReadFrame()
			if err != nil {
				return
			}
			f, ok := frame.(*http2.HeadersFrame)
			if !ok {
				continue
			}
			p.read.read(t, bytes.Clone(f.HeaderBlockFragment()))
			status := map[string]string{"00000000": "200", "00000001": "429", "00000002": "503"}[p.read.fields["x-user"]]
			if !f.StreamEnded() || p.read.fields[":method"] != "GET" || status == "" {
				t.Errorf("%v", p.read.fields)
			}
			p.headers(f.StreamID, false, ":status", status)
			_ = p.WriteData(f.StreamID, true, []byte("a body"))
		}
	})
	p := plan(t, s.address)
	p.Message, p.Keys = Get("/", "x-user"), Keys{Sequence, 3}
	r, err := Run(t.Context(), p)
	if err != nil || r.Allowed < 330 || r.Denied < 330 || r.Errors < 330 || r.Failures[0].First != "HTTP status 503" {
		t.Errorf("%+v, %v, want a third of each", r, err)
	}
}

package service

import (
	"testing"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestResetsWhileRedisHangs resets thousands of calls while Redis hangs, as an Envoy does whose timeout is shorter than
// the service's. The connection stays open, and is served as soon as Redis answers.
func TestResetsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	rules := "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n"
	address, _, debug, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, rules)
		s.Listeners.Transport = nativeTransport
		s.Redis.Main.URL = redis.Addr
	}))
	p := newRawClient(t, address)
	id := uint32(1)
	ask := func() uint32 {
		id += 2
		p.headers(id, usualHeaders(rls.Method), false)
		p.data(id, true, framed(0, usualMessage))
		return id
	}
	if got := p.answer(ask()); got != allowed {
		t.Fatalf("got %q", got)
	}

	redis.Pause()
	const calls, together = 3000, 100
	for range calls / together {
		begin := id + 2
		for range together {
			ask()
		}
		p.awaitRead()
		for k := begin; k <= id; k += 2 {
			_ = p.WriteRSTStream(k, http2.ErrCodeInternal) // an error shows in the answer
		}
	}
	redis.Resume()

	if got := p.answer(ask()); got != allowed {
		t.Errorf("after %d resets: got %q, want %q", calls, got, allowed)
	}
	if n := testenv.Metric(t, "http://"+debug, `extauthz_cut_total{port="grpc",reason="rapid_reset"}`); n != 0 {
		t.Errorf("%v connections were closed", n)
	}
}

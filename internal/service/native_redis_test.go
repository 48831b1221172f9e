package service

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv"
)

// startOnRedis runs the service with the native transport and a Redis, and decides one request.
func startOnRedis(t *testing.T) (server *testenv.RedisServer, address string) {
	t.Helper()
	server = testenv.Redis(t)
	rules := "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1000000}}]"
	address, _, _, _ = start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, rules)
		s.Redis.Main.URL = server.Addr
		s.Redis.Main.Timeout = 10 * time.Second
		s.Listeners.Transport = nativeTransport
	}))
	p := newRawClient(t, address)
	p.ask(1, "first")
	if got := p.answer(1); got != "status 0" {
		t.Fatalf("the first request: %s", got)
	}
	return server, address
}

// rateLimitRequest returns a RateLimitRequest for the limit of a user.
func rateLimitRequest(domain, user string) []byte {
	const first, second = 1<<3 | wire.Bytes, 2<<3 | wire.Bytes
	entry := wire.AppendText(wire.AppendText(nil, first, "user"), second, user)
	descriptor := wire.AppendText(nil, first, string(entry))
	return wire.AppendText(wire.AppendText(nil, first, domain), second, string(descriptor))
}

// ask sends a request for the limit of a user.
func (p *rawClient) ask(id uint32, user string, timeout ...string) {
	h := usualHeaders(rls.Method)
	for _, text := range timeout {
		h.add("grpc-timeout", text)
	}
	p.headers(id, h, false)
	p.data(id, true, framed(0, rateLimitRequest("shop", user)))
}

// TestNoGoroutineWaits has 1,000 requests of one connection wait for a Redis that hangs. They take no goroutine each,
// and the connection is read on. When Redis goes on, each is answered.
func TestNoGoroutineWaits(t *testing.T) { // not parallel, because it counts goroutines
	t.Run("without a deadline", func(t *testing.T) { checkNoGoroutineWaits(t) })
	t.Run("with one deadline", func(t *testing.T) { checkNoGoroutineWaits(t, "9S") })
	t.Run("with several deadlines", func(t *testing.T) { checkNoGoroutineWaits(t, "9S", "9500m", "1M") })
}

func checkNoGoroutineWaits(t *testing.T, timeouts ...string) {
	t.Helper()
	server, address := startOnRedis(t)
	p := newRawClient(t, address)
	p.ask(1, "before")
	if got := p.answer(1); got != "status 0" {
		t.Fatal(got)
	}
	before := runtime.NumGoroutine()
	server.Pause()
	const requests = 1000
	for i := range requests {
		var timeout []string
		if n := len(timeouts); n > 0 {
			timeout = timeouts[i%n:][:1]
		}
		p.ask(uint32(2*i+3), fmt.Sprint("user", i), timeout...)
	}
	p.headers(2*requests+3, usualHeaders("/grpc.health.v1.Health/Check"), false)
	p.data(2*requests+3, true, framed(0, nil))
	answered, healthy := 0, false
	read := func() {
		t.Helper()
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("%d answers: %v", answered, err)
		}
		h, ok := f.(*http2.MetaHeadersFrame)
		if !ok || !h.StreamEnded() {
			return
		}
		if got := described("", h.RegularFields()); got != "status 0" {
			t.Fatalf("stream %d: %s", h.StreamID, got)
		}
		if healthy = healthy || h.StreamID == 2*requests+3; h.StreamID != 2*requests+3 {
			answered++ // also before, by the last known states, on a machine that takes a second to send all
		}
	}
	for !healthy { // it was read after all others
		read()
	}
	if more := runtime.NumGoroutine() - before; more > 20 {
		t.Errorf("%d requests that wait for Redis take %d goroutines", requests, more)
	}
	server.Resume()
	for answered < requests {
		read()
	}
}

// TestSlowClientOfRedis has a client that sends requests and reads no answer. Others are answered meanwhile, although
// the same goroutines answer them.
func TestSlowClientOfRedis(t *testing.T) {
	t.Parallel()
	_, address := startOnRedis(t)
	slow := newRawClient(t, address)
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	const most = 1_000_000
	full := make(chan int, 1)
	go func() {
		message := framed(0, rateLimitRequest("shop", "slow"))
		for i := range most {
			if i%100 == 0 {
				_ = slow.conn.SetWriteDeadline(time.Now().Add(time.Second)) // the service stops to read
			}
			slow.headers(uint32(2*i+1), usualHeaders(rls.Method), false)
			if slow.WriteData(uint32(2*i+1), true, message) != nil {
				full <- i
				return
			}
		}
		full <- most
	}()
	fast := newRawClient(t, address)
	ask := func(id uint32) {
		fast.ask(id, "fast")
		if got := fast.answer(id); got != "status 0" {
			t.Fatalf("the fast client: %s", got)
		}
	}
	id := uint32(1)
	for {
		ask(id)
		id += 2
		select {
		case sent := <-full:
			if ask(id); sent == most {
				t.Errorf("the service has taken %d requests of a client that reads no answer", sent)
			}
			return
		default:
		}
	}
}

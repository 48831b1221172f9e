package guard_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/test/testenv"
)

// serviceBinary is the path of the service, which TestMain builds once for all tests.
var serviceBinary string

func TestMain(m *testing.M) {
	// The service is built without the race detector, because the tests measure its memory.
	os.Exit(testenv.WithService(func(path string) int {
		serviceBinary = path
		return m.Run()
	}))
}

const (
	memoryLimit = 460 << 20
	// containerLimit is the least memory of a container for which the service sets that limit.
	containerLimit = memoryLimit / 90 * 100
)

// attacker is another address of this machine than that of the good clients.
const attacker = "127.0.0.2"

// TestAttacks attacks a running service. It must answer every request of the good clients meanwhile.
func TestAttacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(a *arena)
	}{
		{"unfinished messages", unfinishedMessages},
		{"messages byte by byte", byteByByte},
		{"streams without a message", noMessage},
		{"headers that are short on the wire", shortHeaders},
		{"answers that are not read", unreadAnswers},
		{"answers that are not read on many connections", unreadOnManyConnections},
		{"a block of headers without an end", endlessHeaders},
		{"messages of empty descriptors", emptyDescriptors},
		{"checks of many headers", manyHeaders},
		{"checks of empty headers", emptyHeaders},
		{"many context_extensions", manyExtensions},
		{"much metadata", muchMetadata},
		{"compressed messages", compressed},
		{"connections", connections},
		{"frames that ask nothing", frameFlood},
		{"streams that are reset at once", rapidReset},
		{"HTTP requests without an end", unfinishedHTTP},
		{"HTTP headers without an end", unfinishedHTTPHeaders},
		{"HTTP answers that are not read", unreadHTTP},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, insecure.NewCredentials())
			c.attack(a)
			a.finish()
		})
	}
}

// TestAttacksOverTLS attacks a service whose gRPC listener has TLS, which takes more memory and time.
func TestAttacksOverTLS(t *testing.T) {
	dir, ca := t.TempDir(), testenv.NewAuthority(t)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testenv.WriteCertificate(t, ca.Issue(t, "spiffe://example.org/extauthz", time.Hour), cert, key)
	for _, c := range []struct {
		name   string
		attack func(a *arena)
	}{
		{"unfinished messages", unfinishedMessages},
		{"answers that are not read", unreadAnswers},
		{"connections", connections},
		{"frames that ask nothing", frameFlood},
		{"handshakes without an end", unfinishedHandshakes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
			a := newArena(t, credentials.NewTLS(cfg), "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert,
				"GRPC_SERVER_TLS_KEY="+key)
			a.tls = cfg
			c.attack(a)
			a.finish()
		})
	}
}

// arena is a service, and good clients that ask it until finish.
type arena struct {
	*testing.T
	service *testenv.RunningService
	tls     *tls.Config // of the attacker; nil without TLS
	stop    context.CancelFunc
	clients sync.WaitGroup
	most    int64 // memory of the service
	asked   atomic.Int64
	slowest atomic.Int64
	peers   []*peer
}

// patience is how long a good client waits for each answer. It only ever waits that long when the test fails.
const patience = 20 * time.Second

func newArena(t *testing.T, secured credentials.TransportCredentials, environment ...string) *arena {
	t.Helper()
	rules := "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 100000}}]\nauthz: " +
		"{anonymous: allow, limits: [{actions: [{metadata: {key: plan, path: [jwt, plan]}}]}]}\n"
	root := testenv.RulesRootWith(t, rules)
	environment = append(environment, "GRPC_TRANSPORT=native", "RUNTIME_ROOT="+root,
		fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit))
	a := &arena{T: t, most: containerLimit, service: testenv.Service(t, serviceBinary, environment...)}
	conn, err := grpc.NewClient(a.grpc(), grpc.WithTransportCredentials(secured))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	limits := ratelimitv3.NewRateLimitServiceClient(conn)
	a.clients.Go(func() { a.ask(ctx, func(ctx context.Context) error { return shouldRateLimit(ctx, limits) }) })
	a.clients.Go(func() { a.ask(ctx, a.live) })
	return a
}

func (a *arena) grpc() string { return testenv.Loopback(a.service.GRPCPort) }
func (a *arena) http() string { return testenv.Loopback(a.service.HTTPPort) }

// ask asks again and again until ctx is done, 200 times a second at most. Each answer has to come.
func (a *arena) ask(ctx context.Context, question func(context.Context) error) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ; ctx.Err() == nil; <-pace.C {
		begin := time.Now()
		each, cancel := context.WithTimeout(a.Context(), patience)
		if err := question(each); err != nil {
			a.Errorf("a good client: %v", err)
			cancel()
			return
		}
		cancel()
		a.asked.Add(1)
		if took := int64(time.Since(begin)); took > a.slowest.Load() {
			a.slowest.Store(took)
		}
	}
}

func shouldRateLimit(ctx context.Context, client ratelimitv3.RateLimitServiceClient) error {
	res, err := client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "shop",
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}},
		}})
	if err == nil && res.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		err = fmt.Errorf("got %v", res)
	}
	return err
}

// live is a probe: a connection of its own.
func (a *arena) live(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.http()+"/livez", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// finish ends the good clients, and looks at what the attack did to the service.
func (a *arena) finish() {
	a.Helper()
	before := a.asked.Load()
	testenv.Eventually(a, func() error {
		if n := a.asked.Load() - before; n < 20 && !a.Failed() {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	}, "good clients to be answered while the attack stands")
	a.stop()
	a.clients.Wait()
	if got := a.peakMemory(); got > a.most {
		a.Errorf("the service took %d MiB, want at most %d", got>>20, a.most>>20)
	}
	a.Logf("%d answers, the slowest after %v; %d MiB", a.asked.Load(), time.Duration(a.slowest.Load()),
		a.peakMemory()>>20)
	for _, p := range a.peers {
		_ = p.Close()
	}
}

// peer is an attacker's connection. It counts how its streams end.
type peer struct {
	net.Conn
	*http2.Framer
	out    *bufio.Writer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	failed error // of a write: the service has closed it
	resets [16]atomic.Int64
	ended  atomic.Int64
	gone   atomic.Bool // the service has closed it
}

func (a *arena) dial(to string) net.Conn {
	a.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(attacker)}}
	conn, err := dialer.DialContext(a.Context(), "tcp", to)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = conn.Close() })
	return conn
}

// peer connects, and reads what comes when read is set.
func (a *arena) peer(read bool, settings ...http2.Setting) *peer {
	a.Helper()
	conn := a.dial(a.grpc())
	if a.tls != nil {
		conn = tls.Client(conn, a.tls)
	}
	out := bufio.NewWriterSize(conn, 64<<10)
	p := &peer{Conn: conn, Framer: http2.NewFramer(out, conn), out: out}
	p.hpack = hpack.NewEncoder(&p.block)
	a.peers = append(a.peers, p)
	_, err := io.WriteString(out, http2.ClientPreface)
	p.did(err)
	p.did(p.WriteSettings(settings...))
	p.did(out.Flush())
	if read {
		go p.read() // ends with the connection
	}
	return p
}

func (p *peer) read() {
	defer p.gone.Store(true)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			p.resets[min(int(f.ErrCode), len(p.resets)-1)].Add(1)
		case *http2.RSTStreamFrame:
			p.resets[min(int(f.ErrCode), len(p.resets)-1)].Add(1)
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				p.ended.Add(1)
			}
		}
	}
}

// did records an error of a write: the service has closed the connection, and later writes have no effect.
func (p *peer) did(err error) {
	if err != nil && p.failed == nil {
		p.failed = err
	}
}

const (
	rateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	check     = "/envoy.service.auth.v3.Authorization/Check"
)

// headers begins a stream with the headers of a call and others.
func (p *peer) headers(id uint32, path string, others ...hpack.HeaderField) {
	p.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "a"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, others...) {
		p.did(p.hpack.WriteField(f))
	}
	p.did(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true}))
}

// data sends in frames of 16 KiB; the last ends the stream when end is set.
func (p *peer) data(id uint32, b []byte, end bool) {
	for len(b) > 16<<10 && p.failed == nil {
		p.did(p.WriteData(id, false, b[:16<<10]))
		b = b[16<<10:]
	}
	p.did(p.WriteData(id, end, b))
}

// message has the prefix that gRPC puts before a message.
func message(flag byte, b string) []byte {
	n := len(b)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, b...)
}

// streams calls f with the ids of n streams, until the service closes the connection.
func (p *peer) streams(n int, f func(id uint32)) {
	for i := range n {
		if p.failed != nil {
			return
		}
		f(uint32(2*i + 1))
	}
	p.did(p.out.Flush())
}

// wantReset waits until the service has reset a stream of the attacker's, or ended its connection. The cause is the
// memory that it takes, or the time.
func (a *arena) wantReset() {
	a.Helper()
	testenv.Eventually(a, func() error {
		for _, p := range a.peers {
			if p.resets[http2.ErrCodeEnhanceYourCalm].Load() > 0 || p.resets[http2.ErrCodeCancel].Load() > 0 {
				return nil
			}
		}
		return errors.New("no stream was reset")
	}, "the attacker's streams to be reset")
}

func unfinishedMessages(a *arena) {
	piece := message(0, strings.Repeat("x", 1<<20))[:60_000] // as much as a stream may send at first
	for range 16 {
		p := a.peer(true)
		p.streams(500, func(id uint32) {
			p.headers(id, rateLimit)
			p.data(id, piece, false)
		})
	}
	a.wantReset()
}

func byteByByte(a *arena) {
	const frames, one = 200, "\x00\x00\x01\x00\x00\x00\x00\x00\x00x" // DATA of a byte
	begin, bytewise := message(0, strings.Repeat("x", 1<<20))[:5], bytes.Repeat([]byte(one), frames)
	for range 4 {
		p := a.peer(true)
		p.streams(1000, func(id uint32) {
			p.headers(id, rateLimit)
			p.data(id, begin, false)
			for i := range frames {
				binary.BigEndian.PutUint32(bytewise[i*len(one)+5:], id)
			}
			_, err := p.out.Write(bytewise)
			p.did(err)
		})
	}
	a.wantReset()
}

func noMessage(a *arena) {
	for range 16 {
		p := a.peer(true)
		p.streams(1000, func(id uint32) { p.headers(id, rateLimit) })
	}
	a.wantReset()
}

func shortHeaders(a *arena) {
	many := make([]hpack.HeaderField, 1500)
	for i := range many {
		many[i] = hpack.HeaderField{Name: "a", Value: "b"}
	}
	for range 4 {
		p := a.peer(true)
		p.streams(300, func(id uint32) { p.headers(id, rateLimit, many...) })
	}
	a.wantReset()
}

func call() string {
	return "\x0a\x04shop\x12\x0d\x0a\x0b\x0a\x04user\x12\x03eve"
}

func unreadAnswers(a *arena) {
	for range 16 {
		p := a.peer(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.streams(1000, func(id uint32) {
			p.headers(id, rateLimit)
			p.data(id, message(0, call()), true)
		})
	}
	a.wantReset()
}

func endlessHeaders(a *arena) {
	p := a.peer(true)
	p.did(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x80 | 2}}))
	for range 100_000 {
		p.did(p.WriteContinuation(1, false, bytes.Repeat([]byte{0x80 | 2}, 1000)))
		if p.failed != nil {
			return
		}
	}
	a.Error("100 MB of headers were taken")
}

func emptyDescriptors(a *arena) {
	for range 4 {
		p := a.peer(true)
		p.streams(25, func(id uint32) {
			p.headers(id, rateLimit)
			p.data(id, message(0, strings.Repeat("\x12\x00", 500_000)), true)
		})
	}
}

func manyHeaders(a *arena) {
	var attributes bytes.Buffer
	for i := 0; attributes.Len() < 900_000; i++ {
		key := fmt.Sprintf("%04x", i)
		attributes.WriteString("\x1a\x08\x0a\x04" + key + "\x12\x00")
	}
	http := attributes.String()
	body := wrap(1<<3|2, wrap(4<<3|2, wrap(2<<3|2, http)))
	for range 4 {
		p := a.peer(true)
		p.streams(25, func(id uint32) {
			p.headers(id, check)
			p.data(id, message(0, body), true)
		})
	}
}

// checksAtOnce sends Checks with these attributes on 24 connections, whose last bytes come together. What is in them
// must take little memory.
func (a *arena) checksAtOnce(attributes string) {
	a.Helper()
	const peers, rounds = 24, 4
	body := message(0, wrap(1<<3|2, attributes))
	last := len(body) - 1
	for range peers {
		a.peer(true)
	}
	for i := range rounds {
		id := uint32(2*i + 1)
		for _, p := range a.peers {
			p.headers(id, check)
			p.data(id, body[:last], false)
			p.did(p.out.Flush())
		}
		for _, p := range a.peers {
			p.data(id, body[last:], true)
			p.did(p.out.Flush())
		}
	}
	testenv.Eventually(a, func() error {
		for _, p := range a.peers {
			n := p.ended.Load()
			for i := range p.resets {
				n += p.resets[i].Load()
			}
			if n < rounds && !p.gone.Load() {
				return fmt.Errorf("%d have ended", n)
			}
		}
		return nil
	}, "each Check to end")
	a.most = 300 << 20 // the Checks alone take 24 MB
}

func emptyHeaders(a *arena) {
	a.checksAtOnce(wrap(4<<3|2, wrap(2<<3|2, strings.Repeat("\x1a\x00", 500_000))))
}

func manyExtensions(a *arena) {
	var attributes strings.Builder
	for i := 0; attributes.Len() < 1_000_000; i++ {
		attributes.WriteString(wrap(10<<3|2, wrap(1<<3|2, fmt.Sprintf("%x", i))))
	}
	a.checksAtOnce(attributes.String())
}

func muchMetadata(a *arena) {
	value := wrap(2<<3|2, wrap(6<<3|2, strings.Repeat("\x0a\x06\x2a\x04\x0a\x02\x0a\x00", 125_000)))
	fields := wrap(2<<3|2, wrap(1<<3|2, wrap(1<<3|2, "plan")+value))
	a.checksAtOnce(wrap(11<<3|2, wrap(1<<3|2, wrap(1<<3|2, "jwt")+fields)))
}

func wrap(tag byte, s string) string {
	b := []byte{tag}
	n := len(s)
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return string(append(b, byte(n))) + s
}

// compressed sends messages that are not gzip, and some that are a thousand times larger than what arrives.
func compressed(a *arena) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(make([]byte, 2<<20)) // to memory
	_ = w.Close()
	p := a.peer(true)
	p.streams(100, func(id uint32) {
		p.headers(id, rateLimit, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
		content := zipped.String()
		if id%4 == 1 {
			content = strings.Repeat("x", 1000)
		}
		p.data(id, message(1, content), true)
	})
	testenv.Eventually(a, func() error {
		if n := p.ended.Load(); n != 100 {
			return fmt.Errorf("%d were answered", n)
		}
		return nil
	}, "each to be answered with an error")
}

func connections(a *arena) {
	for range 3000 {
		a.peer(false)
	}
	for range 3000 {
		conn := a.dial(a.http())
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nhost: a\r\n") // the service may have closed it
	}
}

// unfinishedHandshakes sends the beginning of a certificate of 64 kB on each connection.
func unfinishedHandshakes(a *arena) {
	record := append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xfc, 0}, bytes.Repeat([]byte{1}, 1<<14-4)...)
	for range 3000 {
		_, _ = a.dial(a.grpc()).Write(record) // the service may have closed it
	}
}

func frameFlood(a *arena) {
	p := a.peer(true)
	for range 1_000_000 {
		p.did(p.WriteSettings())
		if p.failed != nil {
			return
		}
	}
	a.Error("a million frames were taken")
}

func rapidReset(a *arena) {
	for range 4 {
		p := a.peer(true)
		p.streams(5_000, func(id uint32) {
			p.headers(id, rateLimit)
			p.did(p.WriteRSTStream(id, http2.ErrCodeCancel))
		})
	}
}

// httpConns opens n connections, each of which sends this and waits.
func (a *arena) httpConns(n int, what string) {
	a.Helper()
	for range n {
		conn := a.dial(a.http())
		_, _ = io.WriteString(conn, what) // the service may have closed it
	}
}

func unfinishedHTTP(a *arena) {
	a.httpConns(500, "POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n"+strings.Repeat("x", 900_000))
}

func unfinishedHTTPHeaders(a *arena) {
	var head strings.Builder
	head.WriteString("GET /check/ HTTP/1.1\r\nhost: a\r\n")
	for i := 0; head.Len() < 120_000; i++ {
		fmt.Fprintf(&head, "%x:\r\n", i)
	}
	a.httpConns(400, head.String())
}

func unreadHTTP(a *arena) {
	a.httpConns(500, strings.Repeat("GET /check/ HTTP/1.1\r\nhost: a\r\n\r\n", 200))
}

// peakMemory returns the largest resident memory of the service so far, in bytes (VmHWM of Linux).
func (a *arena) peakMemory() int64 {
	a.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.service.PID()))
	if err != nil {
		a.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				a.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	a.Fatalf("no VmHWM in\n%s", status)
	return 0
}

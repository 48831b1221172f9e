package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// forgery is a reply that takes far more memory than any reply of Redis.
type forgery struct {
	begin string
	rest  string // follows again and again, up to mostForged
}

// mostForged is how much of a forgery is sent to a client that reads on.
const mostForged = 512 << 20

var forgeries = map[string]forgery{
	"a text without end":         {"$9223372036854775807\r\n", ""},
	"a text of 2 GiB":            {"$2147483647\r\n", ""},
	"a text of 200 MB":           {"$200000000\r\n", "xxxxxxxxxx"},
	"an error without end":       {"-", "x"},
	"a status without end":       {"+", "x"},
	"an array without end":       {"*9000000000000000\r\n", ""},
	"an array of 20 million":     {"*20000000\r\n", ""},
	"an array in a page":         {"*2\r\n$1\r\n0\r\n*9000000000000000\r\n", ""},
	"an array of long texts":     {"*90000\r\n", "$20000\r\n" + strings.Repeat("x", 20_000) + "\r\n"},
	"arrays in arrays":           {"", "*1\r\n"},
	"wide arrays in arrays":      {"", "*90000\r\n"},
	"a map without end":          {"%4000000000000000\r\n", ""},
	"a push of 20 million":       {">20000000\r\n", ""},
	"a set of 20 million":        {"~20000000\r\n", ""},
	"an attribute of a reply":    {"|1\r\n$2147483647\r\n", ""},
	"an error of 2 GiB":          {"!2147483647\r\n", ""},
	"a text of 2 GiB with a tag": {"=2147483647\r\n", ""},
}

// impostor answers in place of a Redis, a sentinel or a node of a cluster. It forges one reply.
type impostor struct {
	addr    string
	command string // the beginning of the command with the forged reply
	forgery forgery
	forged  atomic.Bool
	refused chan struct{} // closed after the client has closed the connection with the forged reply
}

func newImpostor(t *testing.T, command string, f forgery) *impostor {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &impostor{addr: listener.Addr().String(), command: command, forgery: f, refused: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(all.Wait) // the clients are closed before
	t.Cleanup(func() { _ = listener.Close() })
	return p
}

// serve answers the commands on a connection.
func (p *impostor) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	commands := bufio.NewReader(c)
	for {
		words, err := readCommand(commands)
		if err != nil {
			return
		}
		if strings.HasPrefix(strings.Join(words, " "), p.command) && p.forged.CompareAndSwap(false, true) {
			p.forge(c)
			return
		}
		if _, err := io.WriteString(c, p.answer(words)); err != nil {
			return
		}
	}
}

// forge sends the forged reply, and waits until the client closes the connection.
func (p *impostor) forge(c net.Conn) {
	defer close(p.refused)
	_, err := io.WriteString(c, p.forgery.begin)
	if rest := p.forgery.rest; rest != "" {
		rest = strings.Repeat(rest, 1+(1<<16)/len(rest))
		for sent := 0; err == nil && sent < mostForged; sent += len(rest) {
			_, err = io.WriteString(c, rest)
		}
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
}

// answer returns what Redis answers.
func (p *impostor) answer(words []string) string {
	host, port, _ := net.SplitHostPort(p.addr)
	switch strings.ToLower(words[0]) {
	case "hello":
		if words[1] == "3" {
			return "%1\r\n$5\r\nproto\r\n:3\r\n"
		}
		return "*2\r\n$5\r\nproto\r\n:2\r\n"
	case "info":
		return "$8\r\nrole:any\r\n" // without a section
	case "sentinel":
		if strings.EqualFold(words[1], "get-master-addr-by-name") {
			return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		}
		return "*0\r\n"
	case "subscribe":
		var b strings.Builder
		for _, channel := range words[1:] {
			fmt.Fprintf(&b, "*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
		}
		return b.String()
	case "cluster":
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	case "command":
		return "*0\r\n"
	}
	return "+OK\r\n"
}

// readCommand reads a command of a client.
func readCommand(r *bufio.Reader) (words []string, err error) {
	length := func(kind byte) (n int) {
		line, failed := r.ReadString('\n')
		if failed != nil {
			err = failed
			return 0
		}
		if n, err = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, string(kind)))); err != nil {
			return 0
		}
		return n
	}
	for range length('*') {
		word := make([]byte, length('$')+len("\r\n"))
		if err != nil {
			return nil, err
		}
		if _, err = io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, strings.TrimSuffix(string(word), "\r\n"))
	}
	return words, err
}

// TestAnnouncedReplies has an impostor in place of Redis, a sentinel or a node of a cluster. A reply that announces or
// takes much more than Redis ever sends neither ends the process nor takes memory: its connection is closed.
//
//nolint:paralleltest // it measures what the process allocates
func TestAnnouncedReplies(t *testing.T) {
	redisstore.Log(slog.New(slog.DiscardHandler))
	const storeMemory, keysMemory = 16 << 20, 160 << 20
	ping := func(ctx context.Context, s *redisstore.Store) { _ = s.Ping(ctx) }
	decide := func(ctx context.Context, s *redisstore.Store) { take(ctx, s, ask("k", perDay(10))) }
	count := func(_ context.Context, s *redisstore.Store) { s.CountReplicas(func(int, error) {}) }
	wait := func(context.Context, *redisstore.Store) {}
	const single, sentinel, cluster = redisstore.Single, redisstore.Sentinel, redisstore.Cluster
	for _, c := range []struct {
		command string
		mode    redisstore.Mode
		use     func(context.Context, *redisstore.Store)
	}{
		{"hello 2", single, ping},
		{"ping", single, ping},
		{"info", single, decide},
		{"script load", single, ping},
		{"EVALSHA", single, decide},
		{"evalsha", single, count},
		{"hello 2", sentinel, wait},
		{"sentinel get-master-addr-by-name", sentinel, decide},
		{"sentinel sentinels", sentinel, wait},
		{"subscribe", sentinel, wait},
		{"cluster slots", cluster, wait},
		{"EVALSHA", cluster, decide},
	} {
		for name, f := range forgeries {
			t.Run(fmt.Sprintf("%s/%s/%s", c.mode, c.command, name), func(t *testing.T) {
				measure(t, c.command, f, storeMemory, func(ctx context.Context, addr string) io.Closer {
					s, err := redisstore.New(redisstore.Config{Mode: c.mode, URL: urlOf(c.mode, addr), Timeout: patient})
					if err != nil {
						t.Fatal(err)
					}
					c.use(ctx, s)
					return s
				})
			})
		}
	}
	for _, c := range []struct {
		command string
		mode    redisstore.Mode
	}{
		{"hello 2", single},
		{"hscan", single},
		{"hscan", sentinel},
		{"hello 3", sentinel},
		{"sentinel get-master-addr-by-name", sentinel},
		{"sentinel sentinels", sentinel},
		{"subscribe", sentinel},
		{"hscan", cluster},
		{"cluster slots", cluster},
		{"command", cluster},
	} {
		for name, f := range forgeries {
			t.Run(fmt.Sprintf("keys/%s/%s/%s", c.mode, c.command, name), func(t *testing.T) {
				measure(t, c.command, f, keysMemory, func(ctx context.Context, addr string) io.Closer {
					client, err := redisstore.Connect(redisstore.Config{Mode: c.mode, URL: urlOf(c.mode, addr), Timeout: patient})
					if err != nil {
						t.Fatal(err)
					}
					_ = client.HScan(ctx, "keys", 0, "", 500).Err()
					return client
				})
			})
		}
	}
}

// TestLongestAnswers reads the answers about full logs whose limits were lowered. They hold each entry but the last.
func TestLongestAnswers(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	const gap, entries = 3_000_000_000, bucket.MaxLogRequests + 1
	limit := bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 1, Window: bucket.MaxWindow}
	log := strings.Repeat(fmt.Sprintf("%d:1 ", gap), entries)
	text := fmt.Sprintf("s1 %d %d 0 %d %d %s", time.Now().UnixMicro(), entries, entries*gap, len(log), log)
	var r bucket.Request
	for i := range 3 {
		key := fmt.Sprint("log", i)
		if err := admin.Set(t.Context(), key, text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		r.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
	}
	o := take(t.Context(), s, r)[0]
	if o.Err != nil || o.Allowed || len(o.Decisions) != 3 || o.RetryAfter < bucket.MaxWindow/2 {
		t.Errorf("the logs are full: %+v", o)
	}
	if most := r.MostBytes(); len(log)*3 < most/4 || len(log)*3 > most {
		t.Errorf("the answer has %d bytes, bounded by %d", len(log)*3, most)
	}
}

func urlOf(mode redisstore.Mode, addr string) string {
	if mode == redisstore.Sentinel {
		return "mymaster," + addr
	}
	return addr
}

// measure lets a client meet an impostor, and checks that it closes the connection and how much it allocates.
func measure(t *testing.T, command string, f forgery, most uint64, use func(context.Context, string) io.Closer) {
	t.Helper()
	p := newImpostor(t, command, f)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client := use(ctx, p.addr)
	select {
	case <-p.refused:
	case <-time.After(5 * time.Second):
		t.Error("the connection is still open")
	}
	runtime.ReadMemStats(&after)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d MB were allocated, want at most %d", took/1e6, most/1e6)
	}
}

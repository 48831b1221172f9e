package h2unary_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // for a client that compresses
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/test/testenv"
)

// dial returns a client of grpc-go.
func dial(t testing.TB, s *server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr().String(), append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echo(ctx context.Context, conn *grpc.ClientConn, method string, message []byte) ([]byte, error) {
	var res wrapperspb.BytesValue
	err := conn.Invoke(ctx, method, wrapperspb.Bytes(message), &res)
	return res.GetValue(), err
}

// TestMessages sends messages of many sizes: with and without several frames, beyond the default windows.
func TestMessages(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	for _, size := range []int{0, 1, 4, 100, 16379, 16380, 16384, 65535, 70_000, 200_000, 1<<20 - 10} {
		sent := bytes.Repeat([]byte("x"), size)
		for range 3 {
			if got, err := echo(t.Context(), conn, echoMethod, sent); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
			}
		}
	}
	_, err := echo(t.Context(), conn, echoMethod, make([]byte, 1<<20))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that is too large: %v", err)
	}
}

// TestCompressedMessages sends messages that are compressed, and some that are much larger than what arrives.
func TestCompressedMessages(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s, grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	large := make([]byte, 256<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large[:128<<10])
	for _, sent := range [][]byte{nil, []byte("x"), make([]byte, 64<<10-10), large} {
		if got, err := echo(t.Context(), conn, echoMethod, sent); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: got %d, %v", len(sent), len(got), err)
		}
	}
	for _, size := range []int{64 << 10, 1 << 20, 2 << 20} {
		if _, err := echo(t.Context(), conn, echoMethod, make([]byte, size)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%d bytes in a message that is a thousand times smaller: %v", size, err)
		}
	}
	if _, err := echo(t.Context(), conn, echoMethod, nil); err != nil {
		t.Errorf("after these: %v", err)
	}
}

// TestConcurrentCalls makes many calls at the same time on one connection.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			for k := range 200 {
				sent := fmt.Appendf(nil, "%d/%d", i, k)
				if got, err := echo(t.Context(), conn, echoMethod, sent); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("sent %q, got %q, %v", sent, got, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// TestErrors reads the errors that clients get.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	for _, c := range []struct {
		name, method, message string
		options               []grpc.CallOption
		code                  codes.Code
		want                  string
	}{
		{"an error with a text", failMethod, "50 % ü\n", nil, codes.ResourceExhausted, "50 % ü\n"},
		{"a long text", failMethod, strings.Repeat("x", 3000), nil, codes.ResourceExhausted, "x"},
		{"an unknown method", "/test.Echo/None", "", nil, codes.Unimplemented, "unknown service or method"},
		{"another spelling", "//test.Echo/Echo", "", nil, codes.Unimplemented, "unknown service or method"},
		{"a panic, which ends the connection", panicMethod, "", nil, codes.Unavailable, ""},
	} {
		var res wrapperspb.BytesValue
		err := conn.Invoke(t.Context(), c.method, wrapperspb.String(c.message), &res, c.options...)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%s: got %v, want %v %q", c.name, err, c.code, c.want)
		}
	}
	if _, err := echo(t.Context(), conn, echoMethod, nil); err != nil {
		t.Errorf("after these: %v", err)
	}
	if n := s.panics.Load(); n != 1 {
		t.Errorf("%d panics were reported, want 1", n)
	}
}

// TestUnknownStream asks an unknown method as grpcurl asks for reflection: the client goes on only after an answer.
func TestUnknownStream(t *testing.T) {
	t.Parallel()
	conn := dial(t, start(t, nil, nil))
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(t.Context(), both, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(wrapperspb.String("x")); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want UNIMPLEMENTED", err)
	}
	if _, err := echo(t.Context(), conn, echoMethod, nil); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestWaitingCalls checks that a call that waits delays no other of its connection, and that deadlines are seen.
func TestWaitingCalls(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	waiting := make(chan error, 1)
	go func() {
		_, err := echo(t.Context(), conn, laterMethod, []byte("later"))
		waiting <- err
	}()
	for range 10 {
		if _, err := echo(t.Context(), conn, echoMethod, []byte("now")); err != nil {
			t.Fatal(err)
		}
	}
	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := echo(late, conn, laterMethod, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call with a deadline: %v", err)
	}
	close(s.release)
	if err := <-waiting; err != nil {
		t.Errorf("the call that waited: %v", err)
	}
}

// TestStream reads the messages of a stream.
func TestStream(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, watchMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(wrapperspb.String("x")); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var res wrapperspb.StringValue
		if err := stream.RecvMsg(&res); err != nil || res.GetValue() != "x" {
			t.Fatalf("got %v, %v", &res, err)
		}
	}
	go s.Shutdown(t.Context())
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream of a server that ends: %v", err)
	}
}

// TestStreamAtDrain begins a stream just before the client has read that the server ends. The server ends it, too.
func TestStreamAtDrain(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	p := connect(t, s)
	done := make(chan struct{})
	go func() { s.Shutdown(t.Context()); close(done) }()
	_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // an error shows in the next read
	for ended := false; !ended; {
		switch f := p.next().(type) {
		case *http2.PingFrame: // the last request before its answer
			if err := errors.Join(p.headers(1, watchMethod, false), p.WritePing(true, f.Data),
				p.WriteData(1, true, prefixed("x"))); err != nil {
				t.Fatal(err)
			}
		case *http2.MetaHeadersFrame:
			ended = f.StreamEnded()
		}
	}
	_ = p.conn.Close()
	<-done
}

// TestDrain makes calls while the server ends, and starts the next one: none is lost.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	conn := dial(t, s)
	calls := make(chan error, 1000)
	var begun sync.WaitGroup
	for range cap(calls) {
		begun.Add(1)
		go func() {
			begun.Done()
			_, err := echo(t.Context(), conn, laterMethod, []byte("x"))
			calls <- err
		}()
	}
	begun.Wait()
	if _, err := echo(t.Context(), conn, echoMethod, nil); err != nil { // the server has at least some of them
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { s.Shutdown(t.Context()); close(done) }()
	close(s.release)
	refused := 0
	for range cap(calls) {
		// Those that had not been sent find no server: they were never lost.
		if err := <-calls; err != nil && !isRefused(err) {
			t.Errorf("a call was lost: %v", err)
		} else if err != nil {
			refused++
		}
	}
	<-done
	t.Logf("%d of %d calls found no server", refused, cap(calls))
}

func isRefused(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "connection refused")
}

// TestAge makes calls on connections that the server keeps ending for their age. No call is lost.
func TestAge(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *h2unary.Config) { c.MaxAge, c.MaxAgeGrace = 50*time.Millisecond, time.Minute }, nil)
	conn := dial(t, s)
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 50 {
				if _, err := echo(t.Context(), conn, pauseMethod, []byte("x")); err != nil {
					t.Errorf("a call was lost: %v", err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// TestTransports makes calls over a Unix socket, and with both versions of TLS.
func TestTransports(t *testing.T) {
	t.Parallel()
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ca := testenv.NewAuthority(t)
	served := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "127.0.0.1", time.Hour)}, NextProtos: []string{"h2"}}
	secured := start(t, nil, func(l net.Listener) net.Listener { return tls.NewListener(l, served) })
	for _, c := range []struct {
		name, target string
		credentials  credentials.TransportCredentials
	}{
		{"a Unix socket", "unix:" + startOn(t, socket, nil, nil).Addr().String(), insecure.NewCredentials()},
		{"TLS 1.2", secured.Addr().String(), credentials.NewTLS(&tls.Config{RootCAs: ca.Pool, MaxVersion: tls.VersionTLS12})},
		{"TLS 1.3", secured.Addr().String(), credentials.NewTLS(&tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS13})},
	} {
		conn, err := grpc.NewClient(c.target, grpc.WithTransportCredentials(c.credentials))
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{echoMethod, queueMethod} {
			for _, size := range []int{1, 3000, 5000, 100_000, 1 << 19} {
				sent := bytes.Repeat([]byte("x"), size)
				if got, err := echo(t.Context(), conn, method, sent); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%s: %s with %d bytes: got %d, %v", c.name, method, size, len(got), err)
				}
			}
		}
		_ = conn.Close()
	}
}

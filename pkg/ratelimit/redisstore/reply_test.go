package redisstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func TestParseReply(t *testing.T) {
	for _, c := range []struct {
		name, data string
		text       string
		refused    bool
		rest       string
		err        bool
	}{
		{name: "a text", data: "$3\r\nabc\r\n", text: "abc"},
		{name: "no text", data: "$0\r\n\r\n"},
		{name: "a text with lines", data: "$5\r\n1\r\n23\r\n", text: "1\r\n23"},
		{name: "a status", data: "+OK\r\n", text: "OK"},
		{name: "an error", data: "-BUSY now\r\n", text: "BUSY now", refused: true},
		{name: "another reply follows", data: "+OK\r\n+", text: "OK", rest: "+"},
		{name: "nil", data: "$-1\r\n", err: true},
		{name: "a negative length", data: "$-3\r\nabc\r\n", err: true},
		{name: "a length with a sign", data: "$+3\r\nabc\r\n", err: true},
		{name: "no length", data: "$\r\n\r\n", err: true},
		{name: "an absurd length", data: "$268435457\r\n", err: true},
		{name: "a length that no number can have", data: "$99999999999999999999\r\n", err: true},
		{name: "a text that is longer", data: "$3\r\nabcd\r\n", err: true},
		{name: "a line that ends otherwise", data: "+OK\n", err: true},
		{name: "an empty line", data: "\r\n", err: true},
		{name: "only the end of a line", data: "+\n", err: true},
		{name: "a line without an end", data: "-" + strings.Repeat("x", maxLine), err: true},
		{name: "a number", data: ":1\r\n", err: true},
		{name: "an error in an array", data: "*1\r\n-ERR\r\n", err: true},
		{name: "a push message of RESP3", data: ">2\r\n+invalidate\r\n_\r\n", err: true},
		{name: "an error of RESP3", data: "!3\r\nERR\r\n", err: true},
		{name: "a text of RESP3", data: "=7\r\ntxt:abc\r\n", err: true},
	} {
		r, n, err := parseReply([]byte(c.data))
		if string(r.text) != c.text || r.refused != c.refused || (err != nil) != c.err {
			t.Errorf("%s: %q, refused %t, %v", c.name, r.text, r.refused, err)
		}
		if err == nil && c.data[n:] != c.rest {
			t.Errorf("%s: %q is left, want %q", c.name, c.data[n:], c.rest)
		}
		if err != nil && !errors.Is(err, errReply) {
			t.Errorf("%s: the error %v is no errReply", c.name, err)
		}
	}
}

// TestRepliesInPieces reads replies that arrive byte by byte, and checks that their texts stay until reset.
func TestRepliesInPieces(t *testing.T) {
	long := strings.Repeat("long ", 10_000)
	data := "+OK\r\n$50000\r\n" + long + "\r\n-ERR no\r\n"
	r := replies{from: iotest.OneByteReader(strings.NewReader(data))}
	var texts [][]byte
	for range 3 {
		next, err := r.read()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, next.text)
	}
	for i, want := range []string{"OK", long, "ERR no"} {
		if string(texts[i]) != want {
			t.Errorf("reply %d: %.20q, want %.20q", i, texts[i], want)
		}
	}
	if r.reset() {
		t.Error("bytes are left")
	}
	if _, err := r.read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// FuzzReply reads bytes as the client library does. What is a reply here is the same reply there. What is a reply there
// is one here, except that the library takes lengths with a sign, and texts that do not end. How the bytes arrive makes
// no difference.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"$3\r\nabc\r\n", "$0\r\n\r\n", "+OK\r\n", "-ERR no\r\n", "$-1\r\n", ":1\r\n", "*1\r\n+a\r\n", "$3\r\nabcd", "+a\n",
		"+\r\n", "-\r\n", "$03\r\nabc\r\n", "_\r\n", ">1\r\n+a\r\n", "$0\r\n00000", "$-0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, n, err := parseReply(data)
		pieces := replies{from: iotest.OneByteReader(bytes.NewReader(data))}
		cut, cutErr := pieces.read()
		same := bytes.Equal(cut.text, whole.text) && cut.refused == whole.refused && pieces.next == n
		if n > 0 && (cutErr != nil || !same) {
			t.Errorf("at once %q, in pieces %q, %v", whole.text, cut.text, cutErr)
		}
		if n == 0 && cutErr == nil || err != nil && !errors.Is(cutErr, errReply) {
			t.Errorf("at once %v, in pieces %v", err, cutErr)
		}
		text, libraryErr := readByLibrary(t.Context(), data)
		switch {
		case n > 0 && whole.refused:
			if libraryErr == nil || libraryErr.Error() != string(whole.text) {
				t.Errorf("the error %q, with the library %v", whole.text, libraryErr)
			}
		case n > 0:
			if libraryErr != nil || text != string(whole.text) {
				t.Errorf("%q, with the library %q, %v", whole.text, text, libraryErr)
			}
		case libraryErr == nil && data[0] == '+':
			t.Errorf("%v, with the library %q", err, text)
		case libraryErr == nil && data[0] == '$' && data[1] != '+' && data[1] != '-':
			if _, rest, _ := strings.Cut(string(data), "\r\n"); strings.HasPrefix(rest, text+"\r\n") {
				t.Errorf("%v, with the library %q", err, text)
			}
		}
	})
}

// readByLibrary returns what the client library makes of a reply.
func readByLibrary(ctx context.Context, data []byte) (string, error) {
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			const hello = "-ERR unknown command 'HELLO'\r\n"
			return &canned{Reader: io.MultiReader(strings.NewReader(hello), bytes.NewReader(data))}, nil
		},
		Protocol: 2, MaxRetries: -1, DisableIdentity: true, ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	return client.Do(ctx, "PING").Text()
}

// canned is a connection whose other end has said all it says.
type canned struct {
	io.Reader
	net.Conn
}

func (c *canned) Read(b []byte) (int, error)     { return c.Reader.Read(b) }
func (*canned) Write(b []byte) (int, error)      { return len(b), nil }
func (*canned) Close() error                     { return nil }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	long := strings.Repeat("x", 100)
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
		{name: "a text that is as long as asked for", data: "$100\r\n" + long + "\r\n", text: long},
		{name: "a text that is longer than asked for", data: "$101\r\n", err: true},
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
		r, n, err := parseReply([]byte(c.data), 100)
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
		next, err := r.read(len(long))
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
	if _, err := r.read(0); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestBoundOfReplies checks replies that arrive whole and byte by byte. Each is at the bound or just beyond it.
func TestBoundOfReplies(t *testing.T) {
	const most = 1_000_000
	text := func(bytes int) string { return fmt.Sprintf("$%d\r\n%s\r\n", bytes, strings.Repeat("\n", bytes)) }
	numbers := func(n int) string { return fmt.Sprintf("*%d\r\n", n) + strings.Repeat(":1\r\n", n) }
	nested := func(depth int, inner string) string { return strings.Repeat("*1\r\n", depth) + inner }
	line := strings.Repeat("x", maxLine-len("+\r\n"))
	for _, c := range []struct {
		name, data string
		resp3, err bool
	}{
		{name: "all types", data: "*7\r\n+OK\r\n-ERR\r\n:-1\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"},
		{name: "the longest text", data: text(most - len("$999988\r\n\r\n"))},
		{name: "a longer text", data: text(most - len("$999988\r\n\r\n") + 1), err: true},
		{name: "two long texts", data: text(most/2) + text(most/2)},
		{name: "two long texts of one reply", data: "*2\r\n" + text(most/2) + text(most/2), err: true},
		{name: "the longest status", data: "+" + line + "\r\n"},
		{name: "a longer status", data: "+" + line + "x\r\n", err: true},
		{name: "an error without an end", data: "-" + line + "xxx", err: true},
		{name: "lines that are too long together", data: "*16\r\n" + strings.Repeat("+"+line+"\r\n", 16), err: true},
		{name: "the longest array", data: numbers(mostElements)},
		{name: "a longer array", data: numbers(mostElements + 1), err: true},
		{name: "arrays that are too long together", data: "*2\r\n" + numbers(mostElements-1), err: true},
		{name: "two long arrays", data: numbers(mostElements) + numbers(mostElements)},
		{name: "nested arrays", data: nested(mostDepth, "*0\r\n") + nested(mostDepth, ":1\r\n")},
		{name: "arrays that are nested deeper", data: nested(mostDepth+1, ":1\r\n"), err: true},
		{name: "the longest number", data: ":-9223372036854775808\r\n"},
		{name: "a longer line of a number", data: ":" + strings.Repeat("0", maxNumber), err: true},
		{name: "a length without an end", data: "$" + strings.Repeat("0", maxNumber), err: true},
		{name: "a length with a sign", data: "$+1\r\na\r\n", err: true},
		{name: "a negative length", data: "*-2\r\n", err: true},
		{name: "no length", data: "$\r\n\r\n", err: true},
		{name: "a length whose line ends otherwise", data: "$1\na\r\n", err: true},
		{name: "a length of nil whose line ends otherwise", data: "$-1\n", err: true},
		{name: "an empty line", data: "\r\n", err: true},
		{name: "another protocol after a reply", data: "+OK\r\nHTTP", err: true},
		{name: "another protocol", data: "HTTP/1.1 400 Bad Request\r\n", err: true},
		{name: "types of RESP3 that were asked for", data: ">2\r\n%1\r\n+a\r\n_\r\n:1\r\n+OK\r\n", resp3: true},
		{name: "the largest map", data: fmt.Sprintf("%%%d\r\n", mostElements/2), resp3: true},
		{name: "a larger map", data: fmt.Sprintf("%%%d\r\n", mostElements/2+1), resp3: true, err: true},
		{name: "a map", data: "%0\r\n", err: true},
		{name: "a push", data: ">0\r\n", err: true},
		{name: "a null", data: "_\r\n", err: true},
		{name: "a set", data: "~0\r\n", resp3: true, err: true},
		{name: "an attribute", data: "|0\r\n", resp3: true, err: true},
		{name: "a text with a type", data: "=7\r\ntxt:abc\r\n", resp3: true, err: true},
		{name: "an error with a length", data: "!3\r\nERR\r\n", resp3: true, err: true},
	} {
		whole, pieces := bound{most: most, resp3: c.resp3}, bound{most: most, resp3: c.resp3}
		all := whole.check([]byte(c.data))
		for i := 0; i < len(c.data) && pieces.err == nil; i++ {
			pieces.check([]byte(c.data[i : i+1]))
		}
		if (whole.err != nil) != c.err || (all < len(c.data)) != c.err || (pieces.err != nil) != c.err {
			t.Errorf("%s: %d of %d bytes, at once %v, byte by byte %v", c.name, all, len(c.data), whole.err, pieces.err)
		}
	}
}

// FuzzReply reads bytes as the client library does. What is a reply here is the same reply there. What is a reply there
// is one here, except that the library takes lengths with a sign, and texts that do not end. How the bytes arrive makes
// no difference.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"$3\r\nabc\r\n", "$0\r\n\r\n", "+OK\r\n", "-ERR no\r\n", "$-1\r\n", ":1\r\n", "*1\r\n+a\r\n", "$3\r\nabcd", "+a\n",
		"+\r\n", "-\r\n", "$03\r\nabc\r\n", "_\r\n", ">1\r\n+a\r\n", "$0\r\n00000", "$-0\r\n\r\n", "+0\r\n0",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, n, err := parseReply(data, len(data))
		pieces := replies{from: iotest.OneByteReader(bytes.NewReader(data))}
		cut, cutErr := pieces.read(len(data))
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

// readByLibrary returns what the client library makes of a reply that is within the bound.
func readByLibrary(ctx context.Context, data []byte) (string, error) {
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			const hello = "-ERR unknown command 'HELLO'\r\n"
			said := io.MultiReader(strings.NewReader(hello), bytes.NewReader(data))
			return newLink(&canned{Reader: said}, bound{most: mostBytes}), nil
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

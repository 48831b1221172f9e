package redisstore

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// arrive sends a byte to the node and waits until it has arrived.
func arrive(t *testing.T, n *node, server net.Conn) {
	t.Helper()
	if _, err := server.Write([]byte{'+'}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		if !n.lane.unread() {
			return errors.New("it has not")
		}
		return nil
	}, "the reply to arrive")
}

// TestReplyBeatsDeadline reads after the deadline, as a process does that has had no CPU. A reply that has arrived is
// read.
func TestReplyBeatsDeadline(t *testing.T) {
	t.Run("TCP", func(t *testing.T) {
		n, server := connected(t)
		checkReads(t, n, server)
	})
	t.Run("TLS", func(t *testing.T) {
		n, server := connected(t)
		certified := httptest.NewTLSServer(nil)
		defer certified.Close()
		secure := tls.Server(server, certified.TLS)
		w := n.lane.workers[0]
		config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate of a test
		client := tls.Client(w.link.Conn, config)
		w.link = linkOf(newLink(client, bound{most: mostBytes}))
		go func() { _ = secure.Handshake() }()
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		if _, err := secure.Write([]byte{'+'}); err != nil { // after the tickets of the session
			t.Fatal(err)
		}
		if _, err := w.link.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		checkReads(t, n, secure)
	})
}

func checkReads(t *testing.T, n *node, server net.Conn) {
	t.Helper()
	conn, past := n.lane.workers[0].link, time.Now().Add(-time.Second)
	for range 2 {
		arrive(t, n, server)
		if err := conn.SetReadDeadline(past); err != nil {
			t.Fatal(err)
		}
		if got, err := conn.Read(make([]byte, 10)); got != 1 || err != nil {
			t.Errorf("a reply that has arrived: %d bytes, %v", got, err)
		}
		if err := conn.SetReadDeadline(past); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without a reply: %v, want %v", err, os.ErrDeadlineExceeded)
		}
	}
}

// TestLinkShowsItsSocket checks that the client library can look at the socket of a link.
func TestLinkShowsItsSocket(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := newLink(conn, bound{most: mostBytes})
	if _, ok := l.(syscall.Conn); !ok {
		t.Errorf("a %T hides the socket of its connection", l)
	}
}

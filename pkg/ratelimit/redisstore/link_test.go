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
		if !n.links.unread() {
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
		for conn := range n.links.open {
			checkReads(t, n, conn, server)
		}
	})
	t.Run("TLS", func(t *testing.T) {
		plain, server := connected(t)
		certified := httptest.NewTLSServer(nil)
		defer certified.Close()
		secure := tls.Server(server, certified.TLS)
		n := new(node)
		for conn := range plain.links.open {
			config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate of a test
			n.links.add(tls.Client(conn.Conn, config))
		}
		go func() { _ = secure.Handshake() }()
		for conn := range n.links.open {
			if err := conn.Conn.(*tls.Conn).Handshake(); err != nil {
				t.Fatal(err)
			}
			if _, err := secure.Write([]byte{'+'}); err != nil { // after the tickets of the session
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			checkReads(t, n, conn, secure)
		}
	})
}

func checkReads(t *testing.T, n *node, conn, server net.Conn) {
	t.Helper()
	past := time.Now().Add(-time.Second)
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

// TestLinks checks that a node knows its open connections only, and that the client can look at their sockets.
func TestLinks(t *testing.T) {
	var l links
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	added := l.add(conn)
	if _, ok := added.(syscall.Conn); !ok {
		t.Errorf("a %T hides the socket of its connection", added)
	}
	if len(l.open) != 1 {
		t.Errorf("%d open connections, want 1", len(l.open))
	}
	if err := added.Close(); err != nil {
		t.Error(err)
	}
	if len(l.open) != 0 || l.unread() {
		t.Errorf("%d open connections, want none", len(l.open))
	}
}

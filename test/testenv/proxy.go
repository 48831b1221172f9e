package testenv

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Pass receives data that one side of a connection has sent. If it returns false, the connection ends without the data.
type Pass func(data []byte) bool

// Proxy passes TCP connections on to a server, and returns its address. connect is called for each connection, and
// returns what is done with data to the server, and with data from it. All connections end with the test, so a Pass
// must not wait longer.
func Proxy(t testing.TB, target string, connect func() (toServer, fromServer Pass)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			closeBoth := func() { _, _ = client.Close(), server.Close() }
			context.AfterFunc(ended, closeBoth)
			toServer, fromServer := connect()
			for _, way := range []struct {
				to, from net.Conn
				pass     Pass
			}{{server, client, toServer}, {client, server, fromServer}} {
				serving.Go(func() {
					defer closeBoth()
					carry(way.to, way.from, way.pass)
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		end()
		serving.Wait()
	})
	return listener.Addr().String()
}

// carry copies in one direction until either side ends.
func carry(to, from net.Conn, pass Pass) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

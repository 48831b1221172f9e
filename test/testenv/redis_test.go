package testenv

import (
	"net"
	"testing"
	"time"
)

func TestRedis(t *testing.T) {
	r := Redis(t)
	for _, network := range []struct{ name, addr string }{{"tcp", r.Addr}, {"unix", r.Socket}} {
		c, err := net.Dial(network.name, network.addr)
		if err != nil {
			t.Fatalf("a new server: dial %s %s: %v", network.name, network.addr, err)
		}
		_ = c.Close()
	}

	r.Pause()
	c, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatalf("a paused server: dial: %v; want a connection that is not answered", err)
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 8)); err == nil {
		t.Errorf("a paused server answered PING with %d bytes", n)
	}
	r.Resume()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 8)); err != nil {
		t.Errorf("a resumed server: read the answer to PING: %v", err)
	}
	_ = c.Close()

	r.Kill()
	if _, err := r.Do("PING"); err == nil {
		t.Error("a killed server answers PING")
	}
	r.Restart()
	if _, err := r.Do("PING"); err != nil {
		t.Errorf("a restarted server: %v", err)
	}
}

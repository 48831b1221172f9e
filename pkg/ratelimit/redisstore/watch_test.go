package redisstore

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch reads from a link on which nothing arrives. The read ends at the end of its batch, whatever the end of an
// earlier batch was, and a read without a batch does not end.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _, _ = client.Close(), server.Close() }()
		l := &link{Conn: client}
		var w watch
		for _, wait := range []time.Duration{time.Second, time.Minute, time.Second, time.Hour, time.Millisecond} {
			for _, stopped := range []bool{true, false} {
				began := time.Now()
				w.begin(l, began.Add(wait))
				if stopped {
					w.stop()
					continue
				}
				_, err := l.Read(make([]byte, 1))
				if took := time.Since(began); took != wait || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a batch of %v ended after %v with %v", wait, took, err)
				}
				w.stop()
			}
		}
		w.begin(l, time.Now().Add(time.Second))
		w.stop()
		go func() {
			time.Sleep(time.Hour)
			_, _ = server.Write([]byte{'+'})
		}()
		if n, err := l.Read(make([]byte, 1)); n != 1 {
			t.Errorf("a reply long after the batch: %v", err)
		}
	})
}

package redisstore_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// proxy stands between a client and Redis.
type proxy struct {
	addr string
	// swallow makes the proxy cut the connection instead of passing on the reply to the next EVALSHA.
	swallow atomic.Bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{}
	p.addr = testenv.Proxy(t, target, func() (toServer, fromServer testenv.Pass) {
		var cut atomic.Bool
		commands := func(data []byte) bool {
			if bytes.Contains(bytes.ToUpper(data), []byte("EVALSHA")) && p.swallow.CompareAndSwap(true, false) {
				cut.Store(true)
			}
			return true
		}
		return commands, func([]byte) bool { return !cut.Load() }
	})
	return p
}

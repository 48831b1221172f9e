package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestLoading has a running Redis load its data, which takes long. It refuses what it is asked meanwhile, and charges
// none of it. What it has loaded may be older than what it had, so an epoch begins.
func TestLoading(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--enable-debug-command", "local", "--loading-process-events-interval-bytes", "1024")
	refuses(t, server, "LOADING", func() (end func()) {
		do(t, server, "DEBUG", "POPULATE", "20000")
		do(t, server, "CONFIG", "SET", "key-load-delay", "200") // µs
		loaded := make(chan error, 1)
		go func() {
			_, err := server.Do("DEBUG", "RELOAD")
			loaded <- err
		}()
		return func() {
			do(t, server, "CONFIG", "SET", "key-load-delay", "0")
			if err := <-loaded; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMasterDown makes the Redis a replica whose master is down, and which must not answer from stale data.
func TestMasterDown(t *testing.T) {
	t.Parallel()
	master := testenv.Redis(t)
	server := testenv.Redis(t, "--replica-serve-stale-data", "no", "--replica-read-only", "no")
	host, port, _ := strings.Cut(master.Addr, ":")
	refuses(t, server, "MASTERDOWN", func() (end func()) {
		master.Kill()
		do(t, server, "REPLICAOF", host, port)
		return func() { do(t, server, "REPLICAOF", "NO", "ONE") }
	})
}

// refuses checks that a Redis answers nothing but this error while something is wrong with it. Nothing is charged, and
// an epoch begins, although the connections and the server stay.
func refuses(t *testing.T, server *testenv.RedisServer, word string, begin func() (end func())) {
	t.Helper()
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	healthy(t, s)
	takeOne(t, s, "k", perDay(10))
	b := &bucket.Take{Key: "k", Limit: perDay(10)}
	before := s.Epoch(b)
	end := begin()
	var err error
	await(t, "Redis to refuse", func() bool {
		err = takeOne(t, s, "other", perDay(1e6)).Err
		return err != nil
	})
	if !strings.Contains(err.Error(), word) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("refused with %v, want %s and no charge", err, word)
	}
	if s.Epoch(b) == before {
		t.Errorf("no epoch began with %v", err)
	}
	end()
	answers(t, s)
	if o := takeOne(t, s, "k", perDay(10)); o.Err != nil || o.Decisions[0].Remaining != 8 {
		t.Errorf("%+v after the second request, want 8 left", o)
	}
}

package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// loadLimit is the limit of the bucket of a load. It is soon used up.
const loadLimit = 500

// load sends some thousand requests a second until it is stopped, and notes the answers.
type load struct {
	t     *testing.T
	begun time.Time
	end   chan struct{}
	all   sync.WaitGroup

	mu                       sync.Mutex
	decided, allowed, failed int
	lastError                error
	last                     time.Time     // of the last decision
	outage                   time.Duration // the longest time between two decisions
	over                     time.Time     // its end
}

func newLoad(t *testing.T, s *redisstore.Store, key string) *load {
	return newLoadOf(t, s, ask(key, perDay(loadLimit)))
}

// newLoadOf is newLoad with another request.
func newLoadOf(t *testing.T, s *redisstore.Store, r bucket.Request) *load {
	now := time.Now()
	l := &load{t: t, begun: now, last: now, end: make(chan struct{})}
	for range 4 {
		l.all.Go(func() {
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-l.end:
					return
				case <-pace.C:
				}
				o := take(t.Context(), s, bucket.Request{Takes: slices.Clone(r.Takes)})[0]
				l.note(o.Err, o.Allowed)
			}
		})
	}
	return l
}

func (l *load) note(err error, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		l.lastError = err
		return
	}
	l.decided++
	if allowed {
		l.allowed++
	}
	now := time.Now()
	if gap := now.Sub(l.last); gap > l.outage {
		l.outage, l.over = gap, now
	}
	l.last = now
}

// await waits until some more requests have been decided.
func (l *load) await(n int) {
	l.t.Helper()
	decided := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.decided
	}
	want := decided() + n
	await(l.t, fmt.Sprint(n, " more decisions"), func() bool { return decided() >= want })
}

// stop ends the load. The test fails if more requests were allowed than the limit and, for each loss of counts, the
// limit once more.
func (l *load) stop(losses int) {
	l.t.Helper()
	close(l.end)
	l.all.Wait()
	if most := loadLimit * (1 + losses); l.allowed > most {
		l.t.Errorf("%d requests were allowed, want at most %d", l.allowed, most)
	}
}

// since returns a time after the beginning of a fault.
func since(fault, at time.Time) time.Duration { return at.Sub(fault).Round(time.Millisecond) }

// report logs how long the load had no decision, and how much of that was after Redis was right again.
func (l *load) report(fault, right time.Time) {
	l.t.Helper()
	l.t.Logf("Redis is right again %v after the fault, the store %v after it: %v later; the longest time without a "+
		"decision is %v", since(fault, right), since(fault, l.over), since(right, l.over), l.outage.Round(time.Millisecond))
}

// awaitMaster returns when a server accepts a write of this key, as redis-cli would see it.
func awaitMaster(t *testing.T, server *testenv.RedisServer, key string) time.Time {
	t.Helper()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if _, err := server.Do("SET", key, "x"); err == nil {
			return time.Now()
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s does not become a master", server.Addr)
		case <-every.C:
		}
	}
}

// isReplica reports whether a server is a replica.
func isReplica(server *testenv.RedisServer) bool {
	role, err := server.Do("ROLE")
	return err == nil && strings.HasPrefix(role, "slave")
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// suspectInterval is the shortest time between two epochs that Suspect begins.
const suspectInterval = time.Second

// epoch is the time during which one Redis has lost no state, as far as its node can tell. Each sign of a loss begins
// another epoch: another server, another start of the server, another role, an unknown script, or an outage.
type epoch struct {
	counter *atomic.Uint64 // of all nodes of the store, so that no two epochs have the same number
	number  atomic.Uint64

	mu        sync.Mutex
	server    string    // the run id and the role of the server, "" if they are not known
	suspected time.Time // when Suspect began an epoch
}

// Epoch returns the number of the current epoch of the Redis that has the bucket of a take, 0 if that is not known. If
// the number is not that of an earlier call, the bucket may be in another Redis, or its Redis may have lost it.
func (s *Store) Epoch(t *bucket.Take) uint64 {
	if n := s.home(t).node; n != nil {
		return n.epoch.number.Load()
	}
	return 0
}

// Suspect begins an epoch of the Redis that has lost the bucket of a take. It does so at most once a second.
func (s *Store) Suspect(t *bucket.Take) {
	n := s.home(t).node
	if n == nil {
		return
	}
	n.epoch.mu.Lock()
	defer n.epoch.mu.Unlock()
	if now := time.Now(); now.Sub(n.epoch.suspected) >= suspectInterval {
		n.epoch.suspected = now
		n.epoch.begin()
	}
}

func (e *epoch) begin() { e.number.Store(e.counter.Add(1)) }

// notice begins an epoch if the reply to a call is a sign of a loss: the server has just started, or it is a replica.
func (e *epoch) notice(reply error) {
	switch code(reply) {
	case "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT":
		e.begin()
	}
}

// errNotConnected means that a new connection could not be used. Nothing was sent but the question who the server is.
var errNotConnected = errors.New("no answer on a new connection")

// connected begins an epoch if a new connection does not lead to the same server in the same role as the last one. If
// the server does not tell, each connection begins an epoch.
func (e *epoch) connected(ctx context.Context, c *redis.Conn) error {
	text, err := c.Info(ctx, "server", "replication").Result()
	if err != nil && code(err) == "" {
		return fmt.Errorf("%w: %w", errNotConnected, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.server
	info := Info(text)
	e.server = info["run_id"] + info["role"]
	if e.server == "" || last != "" && last != e.server {
		e.begin()
	}
	return nil
}

// Info returns the fields of a reply to INFO, of all its sections. InfoMap of the library panics if the reply of an
// impostor has a field before the first section.
func Info(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields
}

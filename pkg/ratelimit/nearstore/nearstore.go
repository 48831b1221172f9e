package nearstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// Shared is a store that several replicas share and that can fail: redisstore.Store.
type Shared interface {
	ratelimit.Store
	// Epoch returns the number of the current epoch of the server that has the bucket of a take. Another number than
	// before means that the server may have lost state. It is 0 if no server is known now.
	Epoch(t *bucket.Take) uint64
	// Suspect begins a new epoch of that server, at most once a second.
	Suspect(t *bucket.Take)
}

// Config has the settings of a store.
type Config struct {
	// Shared has the buckets. Required.
	Shared Shared
	// MaxBuckets is the most buckets that are remembered. Default table.Default.
	MaxBuckets int
	// MaxHolds is the most holds that are remembered by id, of all buckets. Further ones are only part of the sum that
	// Redis shows, and Redis alone ends them. Local then denies reserves. Default DefaultHolds.
	MaxHolds int
	// DenialCache answers requests that Redis would certainly deny.
	DenialCache bool
	// Logger receives losses of state. Default: no log.
	Logger *slog.Logger
	// Panicked is called with the value of a panic while an answer is recorded. The requests have their outcomes then. It
	// runs in the deferred function that recovered. Default: such a panic goes on.
	Panicked func(value any)
}

// DefaultHolds is Config.MaxHolds if none is set.
const DefaultHolds = 1_000_000

// MaxReplicas is the most replicas that Store.SetReplicas knows.
const MaxReplicas = 1000

// Store is a ratelimit.Store in front of a shared one. All methods are safe for concurrent use.
//
// A bucket is unknown until Redis has shown it. It is then known. It is suspect if Redis may have lost its state: until
// a take that carried the known state as a floor is answered, what is known never becomes smaller. It is owing if units
// were admitted here that Redis has not charged. They are charged before the next take of the bucket, in the same call.
type Store struct {
	shared     Shared
	table      *buckets
	replicas   atomic.Int64
	maxHolds   int64
	caches     bool // denials
	logger     *slog.Logger
	panicked   func(value any)
	start      time.Time // when the local clock, in µs, was at origin
	origin     int64
	ahead      atomic.Int64 // T less the local clock, at least, by the last answer; in µs
	exchanges  sync.Pool    // of *exchange
	debts      debts
	counts     counts
	lost       ratelimit.Gate // the log lines about losses of state
	ignored    ratelimit.Gate // those about states that were ignored
	stop       context.CancelFunc
	background sync.WaitGroup
}

// New returns a store. The caller must close it, after the last Take and before the shared store.
func New(cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		shared: cfg.Shared, caches: cfg.DenialCache, logger: cfg.Logger, panicked: cfg.Panicked, start: time.Now(),
	}
	s.SetReplicas(1)
	s.origin = s.start.UnixMicro()
	s.maxHolds = int64(cmp.Or(cfg.MaxHolds, DefaultHolds))
	var err error
	if s.table, err = table.New[note, extra](cfg.MaxBuckets); err != nil {
		return nil, fmt.Errorf("last known state: %w", err)
	}
	s.exchanges.New = func() any {
		b := &exchange{store: s}
		b.received = b.receive
		return b
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.debts = debts{
		most: int64(cmp.Or(cfg.MaxBuckets, table.Default)), queues: map[uint64][]table.Digest{},
		repay: func(epoch uint64) { s.background.Go(func() { s.repayServer(ctx, epoch) }) },
	}
	s.background.Go(func() { s.table.Sweep(ctx, table.SweepInterval, s.now) })
	return s, nil
}

// Close ends all background work. What is still owed to Redis is forgotten.
func (s *Store) Close() error {
	s.stop()
	s.background.Wait()
	return nil
}

// SetReplicas sets how many replicas share the buckets: n, but 1 to MaxReplicas. It is 1 at first. Each unit that is
// admitted without Redis counts that often, so that all replicas together admit what Redis would have admitted.
func (s *Store) SetReplicas(n int) { s.replicas.Store(int64(min(max(n, 1), MaxReplicas))) }

// local returns a time by the local clock, in µs: the wall clock at New plus the elapsed time.
func (s *Store) local(t time.Time) int64 { return s.origin + t.Sub(s.start).Microseconds() }

func (s *Store) now() int64 { return s.origin + time.Since(s.start).Microseconds() }

// Start decides requests by leases and certain denials, and all others in the shared store. See ratelimit.Store.
func (s *Store) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	b := s.exchanges.Get().(*exchange)
	b.begin(outcomes, done)
	for i := range requests {
		b.look(i, &requests[i], &outcomes[i])
	}
	b.send(ctx)
}

// lossNoticed counts and logs that Redis has lost state.
func (s *Store) lossNoticed(now int64) {
	s.counts.losses.Add(1)
	if s.lost.Pass(now/minute, 1) {
		s.logger.Warn("Redis has lost the state of buckets; replicas restore what they remember of it (logged once a minute)")
	}
}

// stateIgnored counts and logs a state that cannot be used: one in an answer, or one that Redis could not join.
func (s *Store) stateIgnored(now int64, why string) {
	s.counts.unreadable.Add(1)
	if s.ignored.Pass(now/minute, 1) {
		s.logger.Warn("a state of a bucket was ignored; the replica and Redis each keep their own (logged once a minute)",
			"reason", why)
	}
}

// minute is how long a Gate lets one log line pass, in µs.
const minute = 60_000_000

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxSentinels bounds how many sentinels are followed, because sentinels name others.
	maxSentinels = 16
	// lateAnswers is how long the other sentinels may take after more than half of them have answered.
	lateAnswers = 10 * time.Millisecond
	// promotion is how long a replica may take to become the master after a sentinel has chosen it.
	promotion = 5 * time.Second
)

// sentinels know which Redis is the master. All are asked and followed, because one of them learns of a failover first.
type sentinels struct {
	master  string        // its name
	options redis.Options // of a client of one of them, except for its address
	stop    context.CancelFunc
	// switched is called with the address of the master, at first and after each failover.
	switched func(ctx context.Context, addr string)
	follows  sync.WaitGroup

	mu      sync.Mutex
	clients map[string]*redis.SentinelClient // by address; nil after close
	chosen  string                           // the replica that was last chosen to become the master
	since   time.Time                        // when it was chosen
}

// newSentinels returns the sentinels of options. The caller must close them.
func newSentinels(o *redis.UniversalOptions) *sentinels {
	s := &sentinels{
		master: o.MasterName, options: *o.Simple(), stop: func() {}, clients: map[string]*redis.SentinelClient{},
	}
	s.options.Username, s.options.Password = o.SentinelUsername, o.SentinelPassword
	for _, addr := range o.Addrs {
		s.clients[addr] = s.client(addr)
	}
	return s
}

func (s *sentinels) client(addr string) *redis.SentinelClient {
	o := s.options
	o.Addr = addr
	return redis.NewSentinelClient(&o)
}

// close ends the following of the sentinels and the connections to them.
func (s *sentinels) close() {
	s.stop()
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	s.follows.Wait()
	for _, c := range clients {
		_ = c.Close() // nothing is lost
	}
}

// follow begins to call switched.
func (s *sentinels) follow(switched func(ctx context.Context, addr string)) {
	ctx, stop := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop, s.switched = stop, switched
	for _, c := range s.clients {
		s.follows.Go(func() { s.followOne(ctx, c) })
	}
}

// The events of sentinels that tell of a failover.
const (
	masterSwitched = "+switch-master"
	replicaChosen  = "+selected-slave"
)

// followOne follows one sentinel until ctx is done. The subscription reconnects by itself.
func (s *sentinels) followOne(ctx context.Context, c *redis.SentinelClient) {
	subscription := c.Subscribe(ctx, masterSwitched, replicaChosen)
	defer func() { _ = subscription.Close() }()
	events := subscription.ChannelWithSubscriptions(redis.WithChannelSize(1)) // an event may have mostBytes
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			switch e := event.(type) {
			case *redis.Subscription: // events before it were missed
				if e.Channel == masterSwitched {
					s.discover(ctx, c)
					if addrs, err := s.masters(ctx); err == nil {
						s.switched(ctx, addrs[0])
					}
				}
			case *redis.Message:
				if addr := s.hear(e.Channel, strings.Fields(e.Payload)); addr != "" {
					s.switched(ctx, addr)
				}
			}
		}
	}
}

// hear notes an event. It returns the address of the new master, "" if there is none.
//
//	+switch-master   mymaster 10.0.0.1 6379 10.0.0.2 6379
//	+selected-slave  slave 10.0.0.2:6379 10.0.0.2 6379 @ mymaster 10.0.0.1 6379
func (s *sentinels) hear(channel string, words []string) (master string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case channel == masterSwitched && len(words) == 5 && words[0] == s.master:
		s.chosen = ""
		return net.JoinHostPort(words[3], words[4])
	case channel == replicaChosen && len(words) == 8 && words[5] == s.master:
		s.chosen, s.since = net.JoinHostPort(words[2], words[3]), time.Now()
	}
	return ""
}

// discover follows the sentinels that one of them names.
func (s *sentinels) discover(ctx context.Context, c *redis.SentinelClient) {
	others, err := c.Sentinels(ctx, s.master).Result()
	if err != nil {
		return // those that are known suffice
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range others {
		addr := net.JoinHostPort(other["ip"], other["port"])
		if _, known := s.clients[addr]; known || s.clients == nil || len(s.clients) >= maxSentinels {
			continue
		}
		found := s.client(addr)
		s.clients[addr] = found
		s.follows.Go(func() { s.followOne(ctx, found) })
	}
}

// masters returns the addresses that the sentinels name as that of the master, first the one that most of them name. It
// does not wait long for sentinels that do not even refuse a connection, as pods that are gone. Most may be gone.
func (s *sentinels) masters(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	clients := slices.Collect(maps.Values(s.clients))
	s.mu.Unlock()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(clients)) // with room for those that are late
	for _, c := range clients {
		go func() {
			words, err := c.GetMasterAddrByName(ctx, s.master).Result()
			if err == nil && len(words) != 2 {
				err = fmt.Errorf("a sentinel names the master by %d words, want 2", len(words))
			}
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{addr: net.JoinHostPort(words[0], words[1])}
		}()
	}
	votes, failed := map[string]int{}, []error(nil)
	slow, late := time.After(patience), (<-chan time.Time)(nil)
	for n, over := 0, false; n < len(clients) && (!over || len(votes) == 0); {
		select {
		case a := <-answers:
			n++
			if a.err != nil {
				failed = append(failed, a.err)
			} else {
				votes[a.addr]++
			}
			if late == nil && len(votes) > 0 && 2*n > len(clients) {
				late = time.After(lateAnswers)
			}
		case <-late:
			over = true
		case <-slow:
			over = true
		}
	}
	if len(votes) == 0 {
		return nil, fmt.Errorf("redis: no sentinel names the master: %w", errors.Join(failed...))
	}
	return slices.SortedFunc(maps.Keys(votes), func(a, b string) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b))
	}), nil
}

// candidates returns the addresses at which the master may be while it does not answer at one of them, the likeliest
// first. A replica that was chosen accepts writes up to a second before a sentinel names it.
func (s *sentinels) candidates(ctx context.Context, silent string) ([]string, error) {
	addrs, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chosen != "" && time.Since(s.since) < promotion && !slices.Contains(addrs, s.chosen) {
		addrs = append(addrs, s.chosen)
	}
	if i := slices.Index(addrs, silent); i >= 0 {
		addrs = append(slices.Delete(addrs, i, i+1), silent)
	}
	return addrs, nil
}

// dialer returns a dialer that connects to the master.
func (s *sentinels) dialer(dial dialer) dialer {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		addrs, err := s.masters(ctx)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, addrs[0])
	}
}

package redisstore_test

import (
	"context"
	"errors"
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

// TestClusterTableChanges decides requests while the table of the slots changes again and again.
func TestClusterTableChanges(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	end, changes := make(chan struct{}), sync.WaitGroup{}
	changes.Go(func() { redisstore.ChangeTable(s, end) })
	for range 2000 {
		o := take(t.Context(), s, askAll(perDay(1e6), keys...))[0]
		if o.Err != nil && !errors.Is(o.Err, redisstore.ErrUnavailable) {
			t.Error(o.Err)
		}
	}
	close(end)
	changes.Wait()
}

// TestClusterNodesReplaced ends nodes that have no slots any more while requests wait for them. The requests go to the
// nodes that have the slots now, and none fails.
func TestClusterNodesReplaced(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	keys := inEach(cluster, "k")
	end, load := make(chan struct{}), sync.WaitGroup{}
	for range 16 {
		load.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				r := askAll(perDay(1e6), keys...)
				r.Add(bucket.Take{Key: keys[0] + "{" + keys[0] + "}", Limit: perDay(1), Cost: 1})
				if o := take(t.Context(), s, r)[0]; o.Err != nil {
					t.Error(o.Err)
				}
			}
		})
	}
	for range 50 {
		if err := redisstore.ReplaceNodes(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	close(end)
	load.Wait()
}

// TestClusterAddresses checks the forms in which nodes name each other.
func TestClusterAddresses(t *testing.T) {
	for _, c := range []struct{ named, by, want string }{
		{"10.0.0.1:6381", "10.0.0.2:6379", "10.0.0.1:6381"},
		{"redis-1.example:6381", "10.0.0.2:6379", "redis-1.example:6381"},
		{":6381", "10.0.0.2:6379", "10.0.0.2:6381"},
		{"?:6381", "[2001:db8::2]:6379", "[2001:db8::2]:6381"},
		{"2001:db8::1:6381", "[2001:db8::2]:6379", "[2001:db8::1]:6381"}, // Redis writes no brackets
		{"[2001:db8::1]:6381", "[2001:db8::2]:6379", "[2001:db8::1]:6381"},
	} {
		if got := redisstore.Complete(c.named, c.by); got != c.want {
			t.Errorf("%s, named by %s: %s, want %s", c.named, c.by, got, c.want)
		}
	}
}

// TestPingHanging checks that a Redis that hangs does not make others look unreachable, and that a ping that was
// canceled says nothing about Redis.
func TestPingHanging(t *testing.T) {
	t.Parallel()
	cluster, main := testenv.Cluster(t), testenv.Redis(t)
	s := open(t, redisstore.Config{URL: main.Addr, Timeout: patient, PerSecond: &redisstore.Config{
		Mode: redisstore.Cluster, URL: cluster.Addrs(), Timeout: patient,
	}})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	main.Pause()
	cluster.Masters[0].Pause()
	defer main.Resume()
	defer cluster.Masters[0].Resume()
	up := func() (names []string) {
		for _, n := range s.Nodes() {
			if n.Up {
				names = append(names, n.Name)
			}
		}
		return names
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ping(canceled); err == nil || len(up()) != 4 {
		t.Errorf("after a ping that was canceled (%v), %v are up, want all four", err, up())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	want := []string{cluster.Masters[1].Addr, cluster.Masters[2].Addr}
	if err := s.Ping(ctx); err == nil || !slices.Equal(up(), want) {
		t.Errorf("while two hang (%v), %v are up, want %v", err, up(), want)
	}
}

// TestUnservedSlots: while a slot has no node, the slots are read less and less often. The slot is used after it was
// assigned.
func TestUnservedSlots(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	want := []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, time.Minute,
		200 * ms}
	got := redisstore.Pauses(true, true, true, true, true, true, true, false, true)
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}

	cluster := testenv.Cluster(t, "--cluster-require-full-coverage", "no")
	key := inEach(cluster, "unserved")[0]
	owner := cluster.MasterOf(key)
	slot, err := owner.Do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		for _, m := range cluster.Masters {
			if _, err := m.Do("GET", key); err == nil || !strings.Contains(err.Error(), "Hash slot not served") {
				_, _ = m.Do("CLUSTER", "DELSLOTS", slot) // an error means that it has learned of another node's
				return fmt.Errorf("%s has a node for it", m.Addr)
			}
		}
		return nil
	}, "the slot to have no node")
	s := openCluster(t, cluster)
	decide := func() error { return take(t.Context(), s, askAll(perDay(1e6), key))[0].Err }
	if err := decide(); err == nil {
		t.Error("a slot without a node has decided")
	}
	if _, err := owner.Do("CLUSTER", "ADDSLOTS", slot); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, decide, "the slot to be used")
}

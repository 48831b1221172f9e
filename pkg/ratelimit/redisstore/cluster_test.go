package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	t.Run("several slots", func(t *testing.T) {
		storetest.RunSpread(t, func(t *testing.T) storetest.Store { return openCluster(t, cluster) })
	})
	t.Run("one slot", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Store { return oneSlot{openCluster(t, cluster)} })
	})
}

// oneSlot keeps all buckets in one slot of a cluster.
type oneSlot struct{ *redisstore.Store }

// slotTag begins the keys of oneSlot.
const slotTag = "{one slot}"

func (s oneSlot) Start(ctx context.Context, batch []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	tagged := make([]bucket.Request, len(batch))
	for i, r := range batch {
		tagged[i] = bucket.Request{At: r.At, Dry: r.Dry, Takes: slices.Clone(r.Takes)}
		for k := range r.Takes {
			tagged[i].Takes[k].Key = slotTag + r.Takes[k].Key
		}
	}
	ratelimit.Take(ctx, s.Store, tagged, outcomes)
}

func openCluster(t *testing.T, cluster *testenv.RedisCluster) *redisstore.Store {
	t.Helper()
	return open(t, redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs(), Timeout: patient})
}

// inEach returns a key for each master of the cluster, with a prefix.
func inEach(cluster *testenv.RedisCluster, prefix string) (keys []string) {
	for _, m := range cluster.Masters {
		for i := 0; ; i++ {
			if key := fmt.Sprint(prefix, i); cluster.MasterOf(key) == m {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// askAll takes one unit from each of the buckets, in one request.
func askAll(limit bucket.Limit, keys ...string) (r bucket.Request) {
	for _, key := range keys {
		r.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
	}
	return r
}

// TestClusterRoundTrips checks that a request with several slots needs one script call for each of them. If it is
// denied, only those that have charged are called again.
func TestClusterRoundTrips(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	keys := inEach(cluster, "k")
	if o := take(t.Context(), s, askAll(perDay(1), keys[0]))[0]; !o.Allowed {
		t.Fatalf("%+v", o)
	}
	take(t.Context(), s, askAll(perDay(1), inEach(cluster, "warm")...)) // each node has the script now
	var stats []func() map[string]int
	for _, m := range cluster.Masters {
		stats = append(stats, commandStats(t, m))
	}
	o := take(t.Context(), s, askAll(perDay(1), keys...))[0]
	if o.Err != nil || o.Allowed || o.RetryAfter <= 0 || o.Decisions[0].Allowed || !o.Decisions[1].Allowed {
		t.Errorf("one of three buckets is used up: %+v", o)
	}
	for i, d := range o.Decisions[1:] {
		if d.Remaining != 1 {
			t.Errorf("bucket %d: %d left after the denial, want 1", i+1, d.Remaining)
		}
	}
	for i, want := range []int{1, 2, 2} {
		if got := stats[i]()["evalsha"]; got != want {
			t.Errorf("node %d: %d EVALSHA, want %d", i, got, want)
		}
	}
	for i, key := range keys[1:] {
		if got, err := cluster.MasterOf(key).Do("EXISTS", key); got != "0" || err != nil {
			t.Errorf("bucket %d exists after the denial (%v)", i+1, err)
		}
	}
}

// TestClusterNodeDown checks that a request with a bucket at a dead node is not decided and charges nothing elsewhere.
// Requests for the other nodes are decided.
func TestClusterNodeDown(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, "--cluster-require-full-coverage", "no")
	s := openCluster(t, cluster)
	keys := inEach(cluster, "k")
	take(t.Context(), s, askAll(perDay(100), inEach(cluster, "warm")...))
	cluster.Masters[2].Kill()
	for i := range 3 { // the first one finds the node dead, the others know it
		o := take(t.Context(), s, askAll(perDay(10), keys...))[0]
		if o.Err == nil {
			t.Errorf("request %d: %+v, want an error", i, o)
		}
	}
	for i, key := range keys[:2] {
		if o := takeOne(t, s, key, perDay(10)); o.Err != nil || o.Decisions[0].Remaining != 9 {
			t.Errorf("bucket %d after the requests that failed: %+v, want 9 left", i, o)
		}
	}
	up := map[string]bool{}
	for _, n := range s.Nodes() {
		up[n.Name] = n.Up
	}
	if len(up) != 3 || !up[cluster.Masters[0].Addr] || up[cluster.Masters[2].Addr] {
		t.Errorf("nodes: %v, want three, of which the last one is down", s.Nodes())
	}
}

// TestClusterMovingSlot keeps deciding requests with two buckets of one slot while that slot moves: before, with none,
// one and both of the keys moved, and after. Never are more requests allowed than the limit, and none fails.
func TestClusterMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	from, to := fromTo(cluster, "{moving}")
	charged, holds := 0, 0
	decide := func(when string) {
		t.Helper()
		for range 3 {
			batch := []bucket.Request{
				askAll(perDay(1000), "{moving}a", "{moving}b"), askAll(perDay(1000), "{moving}b"),
				askAll(perDay(1000), fmt.Sprintf("{moving}new %d", charged), "{moving}a", inEach(cluster, "other")[0]),
			}
			for i, o := range take(t.Context(), s, batch...) {
				if o.Err != nil || !o.Allowed {
					t.Fatalf("%s: request %d: %+v", when, i, o)
				}
			}
			charged += 2
			if o := take(t.Context(), s, batch[0])[0]; o.Err != nil || o.Decisions[0].Remaining != int64(1000-charged-1) ||
				o.Decisions[1].Remaining != int64(1000-charged-1) {
				t.Fatalf("%s: %+v, want %d left", when, o, 1000-charged-1)
			}
			charged++
			// A hold has 2 units, of which the next request settles 1.
			o := take(t.Context(), s, hold("{moving}h", perDay(1000), 0, minutes, held(2, holds+1), held(1, holds)))[0]
			if when == "with one key moved" { // no node has both keys of the bucket
				if redisstore.Reason(o.Err) != "TRYAGAIN" || errors.Is(o.Err, ratelimit.ErrOutcomeUnknown) {
					t.Fatalf("%s: hold %d: %+v, want TRYAGAIN", when, holds, o)
				}
				continue
			}
			holds++
			if o.Err != nil || !o.Allowed || o.Decisions[0].Held.Number != 1 || o.Decisions[0].Remaining != int64(1000-holds-2) {
				t.Fatalf("%s: hold %d: %+v, want %d left", when, holds, o, 1000-holds-2)
			}
		}
		// A request that is denied charges nothing, wherever its buckets are.
		r := askAll(perDay(1000), "{moving}a", "{moving}b")
		r.Add(bucket.Take{Key: "{moving}none", Limit: perDay(1), Cost: 2})
		if o := take(t.Context(), s, r)[0]; o.Err != nil || o.Allowed {
			t.Fatalf("%s: %+v, want a denial", when, o)
		}
	}
	decide("before the move")
	cluster.BeginMove("{moving}", from, to)
	decide("with no key moved")
	cluster.MoveKey("{moving}a", from, to)
	cluster.MoveKey("{moving}h", from, to)
	decide("with one key moved")
	cluster.MoveKey("{moving}b", from, to)
	other, err := from.Do("KEYS", "rl:h*{moving}h")
	if err != nil || other == "" {
		t.Fatalf("the other key of a bucket with holds: %q, %v", other, err)
	}
	cluster.MoveKey(other, from, to)
	decide("with both keys moved")
	for i := range charged { // the new buckets, which must leave before the slot does
		key := fmt.Sprintf("{moving}new %d", i)
		if there, err := from.Do("EXISTS", key); err == nil && there == "1" {
			cluster.MoveKey(key, from, to)
		}
	}
	cluster.EndMove("{moving}", from, to)
	decide("after the move")
	stats := commandStats(t, from)
	await(t, "requests to go to the new node at once", func() bool {
		before := stats()["evalsha"]
		takeOne(t, s, "{moving}a", perDay(1000))
		return stats()["evalsha"] == before
	})
}

// TestClusterChargesOnce moves a slot to and fro while requests go on. Nodes answer some of them with ASK and MOVED,
// and each is charged once.
func TestClusterChargesOnce(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	const key, requests = "{moving}a", 1_000_000
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: requests, Window: 365 * 86_400_000_000}
	from, to := fromTo(cluster, key)
	answers(t, s)
	under := newLoadOf(t, s, ask(key, limit))
	under.await(100)
	for range 3 {
		cluster.BeginMove(key, from, to)
		under.await(100)
		cluster.MoveKey(key, from, to)
		under.await(100)
		cluster.EndMove(key, from, to)
		under.await(100)
		from, to = to, from
	}
	under.stop(requests)
	if under.failed > 0 {
		t.Errorf("%d requests failed, the last with %v", under.failed, under.lastError)
	}
	if left := takeOne(t, s, key, limit).Decisions[0].Remaining; left != int64(requests-under.allowed-1) {
		t.Errorf("%d left after %d requests, want %d", left, under.allowed+1, requests-under.allowed-1)
	}
	replies := map[string]int{}
	for _, m := range []*testenv.RedisServer{from, to} {
		for _, word := range []string{"ASK", "MOVED"} {
			replies[word] += errorReplies(t, m, word)
		}
	}
	t.Logf("%d requests, and these replies: %v", under.allowed, replies)
	if replies["ASK"] == 0 || replies["MOVED"] == 0 {
		t.Errorf("the nodes sent these replies: %v, want ASK and MOVED", replies)
	}
}

// errorReplies returns how many replies of a server were errors with this first word.
func errorReplies(t *testing.T, server *testenv.RedisServer, word string) (n int) {
	t.Helper()
	info, err := server.Do("INFO", "errorstats")
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(info, "errorstat_"+word+":count="); ok {
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestClusterScript checks that each node gets the script, also after it was forgotten.
func TestClusterScript(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	for range 2 {
		for _, m := range cluster.Masters {
			if _, err := m.Do("SCRIPT", "FLUSH"); err != nil {
				t.Fatal(err)
			}
		}
		if o := take(t.Context(), s, askAll(perDay(10), inEach(cluster, "k")...))[0]; o.Err != nil || !o.Allowed {
			t.Errorf("%+v", o)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClusterUnreachable checks that Up learns that no node can be reached, and later that one is back.
func TestClusterUnreachable(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	server.Kill()
	up := make(chan error, 10)
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, URL: server.Addr, Up: func(node string, cause error) {
		if node == server.Addr {
			up <- cause
		}
	}})
	if err := s.Ping(t.Context()); err == nil {
		t.Error("an answer of a killed Redis")
	}
	if cause := <-up; cause == nil {
		t.Error("Up got nil, want an error")
	}
	if err := takeOne(t, s, "k", perDay(1)).Err; !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if n := s.Nodes(); len(n) != 1 || n[0].Up || n[0].Name != server.Addr {
		t.Errorf("nodes: %v", n)
	}
}

// TestNoCluster checks that a Redis that is no cluster is named as the mistake.
func TestNoCluster(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, URL: server.Addr})
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster support disabled") {
		t.Errorf("%v, want the reply of a Redis without cluster support", err)
	}
}

// TestClusterForeignValue checks that an unreadable bucket fails its request only, and that the error names its take.
func TestClusterForeignValue(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	keys := inEach(cluster, "k")
	if _, err := cluster.MasterOf(keys[1]).Do("SET", keys[1], "garbage"); err != nil {
		t.Fatal(err)
	}
	o := take(t.Context(), s, askAll(perDay(10), keys...))[0]
	failed, ok := errors.AsType[*bucket.ScriptError](o.Err)
	if !ok || failed.Take != 1 || failed.Code != "UNREADABLE" || errors.Is(o.Err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("%v of %+v, want UNREADABLE of take 1", o.Err, failed)
	}
	for _, key := range []string{keys[0], keys[2]} {
		if o := takeOne(t, s, key, perDay(10)); o.Err != nil || o.Decisions[0].Remaining != 9 {
			t.Errorf("another bucket of the request: %+v, want 9 left", o)
		}
	}
}

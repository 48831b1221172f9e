package redisstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

var minutes = bucket.Hold{TTL: 600_000_000, Most: 10_000}

// held returns costs under ids that are made of numbers.
func held(cost uint64, ids ...int) (costs []bucket.HoldCost) {
	for _, id := range ids {
		costs = append(costs, bucket.HoldCost{ID: holdID(id), Cost: cost})
	}
	return costs
}

// holdID returns the id of a number, as random as that of a client's text.
func holdID(n int) bucket.HoldID {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	return bucket.HoldID(sum[:16])
}

// hold returns a request with a cost, reserves and settlements.
func hold(key string, limit bucket.Limit, cost uint64, terms bucket.Hold, reserves, settles []bucket.HoldCost,
) (r bucket.Request) {
	terms.Reserves, terms.Settles = reserves, settles
	r.Add(bucket.Take{Key: key, Limit: limit, Cost: cost, Hold: &terms})
	return r
}

// TestHoldsOfWrongType checks that foreign values in the place of holds fail only the requests that need the holds, and
// stay.
func TestHoldsOfWrongType(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	limit := perDay(10)
	do(t, server, "SET", redisstore.HoldsOf("", "k"), "foreign")
	do(t, server, "SET", "unreadable", "h1 5|x")
	both := hold("good", limit, 0, minutes, held(1, 1), nil)
	both.Add(hold("k", limit, 0, minutes, held(1, 1), nil).Takes[0])
	all := take(t.Context(), s, both, hold("k", limit, 1, minutes, nil, nil), hold("good", limit, 1, minutes, nil, nil),
		hold("unreadable", limit, 1, minutes, nil, nil))
	for i, code := range map[int]string{0: "WRONGTYPE", 3: "UNREADABLE"} {
		if e, ok := errors.AsType[*bucket.ScriptError](all[i].Err); !ok || e.Code != code || e.Partly {
			t.Errorf("request %d: %+v, want %s, and nothing charged", i, all[i], code)
		}
	}
	for i := 1; i <= 2; i++ {
		if o := all[i]; o.Err != nil || o.Decisions[0].Remaining != 9 {
			t.Errorf("request %d beside it: %+v, want 9 left", i, o)
		}
	}
	if value, err := server.Do("GET", redisstore.HoldsOf("", "k")); value != "foreign" {
		t.Errorf("the foreign value is %q now (%v)", value, err)
	}
}

// TestHoldsExpireInRedis checks when Redis drops holds and their bucket: as soon as neither they nor their charge
// matter, and with the last one that is settled.
func TestHoldsExpireInRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	script := newBare(t, server.Addr)
	const hour = 3_600_000_000
	for _, algorithm := range append(bucket.Algorithms, bucket.Concurrency) {
		for _, release := range []bool{false, true} {
			limit := bucket.Limit{Algorithm: algorithm, Requests: 100, Burst: 100, Window: hour}
			if algorithm == bucket.Concurrency {
				limit.Window = 0
			}
			key := fmt.Sprint(algorithm, release)
			terms := bucket.Hold{TTL: 60_000_000, Most: 10, Release: release || algorithm == bucket.Concurrency}
			check := func(what string, r bucket.Request) {
				t.Helper()
				o := take1(t, script, r)
				end := o.Decisions[0].ExpireAt
				for _, name := range []string{key, "holds:" + key} {
					slack := script.client.Do(t.Context(), "PEXPIRETIME", name).Val().(int64)*1000 - end
					if o.Decisions[0].Held.Number > 0 && (slack < 1000 || slack > 5_000_000) {
						t.Errorf("%s: %s: %s expires %d µs after its use: %+v", key, what, name, slack, o)
					}
				}
			}
			check("a hold", hold(key, limit, 0, terms, held(1, 1), nil))
			check("another one", hold(key, limit, 0, terms, held(30, 2, 2), nil))
			check("a charge", hold(key, limit, 9, terms, nil, nil))
			check("one is settled", hold(key, limit, 0, terms, nil, held(20, 2)))
			terms.TTL = 1_000_000
			check("all are cut", hold(key, limit, 0, terms, nil, nil))
			take1(t, script, hold(key, limit, 0, terms, nil, held(0, 1, 2)))
			if n := script.client.Exists(t.Context(), "holds:"+key).Val(); n != 0 {
				t.Errorf("%s: all are settled, but the hash exists", key)
			}
			if text := script.client.Get(t.Context(), key).Val(); strings.HasPrefix(text, "h1") {
				t.Errorf("%s: all are settled, but the text is %q", key, text)
			}
		}
	}
}

// take1 decides one request.
func take1(t *testing.T, script *bare, r bucket.Request) bucket.Outcome {
	t.Helper()
	outcomes := make([]bucket.Outcome, 1)
	if err := script.take(t.Context(), []bucket.Request{r}, outcomes); err != nil || outcomes[0].Err != nil {
		t.Fatal(err, outcomes[0].Err)
	}
	return outcomes[0]
}

// TestHoldsOfLostRule checks that a rule that has lost its holds counts only what is charged. A replica with the
// previous rule still finds the holds.
func TestHoldsOfLostRule(t *testing.T) {
	t.Parallel()
	script := newBare(t, testenv.Redis(t).Addr)
	for _, algorithm := range append(bucket.Algorithms, bucket.Concurrency) {
		limit, charges := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: 1e12}, int64(1)
		if algorithm == bucket.Concurrency {
			limit.Window, charges = 0, 0
		}
		key := algorithm.String()
		terms := minutes
		terms.Release = true
		for i, c := range []struct {
			r    bucket.Request
			left int64
		}{
			{hold(key, limit, 0, terms, held(7, 1), nil), 3},
			{bucket.Request{Takes: []bucket.Take{{Key: key, Limit: limit, Cost: 1}}}, 10 - charges},
			{bucket.Request{Takes: []bucket.Take{{Key: key, Limit: limit, Refund: 1}}}, 10},
			{bucket.Request{Takes: []bucket.Take{{Key: key, Limit: limit, Cost: 1}}}, 10 - charges},
			{bucket.Request{Dry: true, Takes: []bucket.Take{{Key: key, Limit: limit}}}, 10 - charges},
			{hold(key, limit, 0, terms, nil, nil), 3 - charges},
			{hold(key, limit, 0, terms, nil, held(2, 1)), 10 - 3*charges},
		} {
			if got := take1(t, script, c.r).Decisions[0].Remaining; got != c.left {
				t.Errorf("%s, request %d: %d left, want %d", key, i, got, c.left)
			}
		}
	}
}

// TestHoldsThatAreLost checks that the numbers become exact when the first hold would expire, if another program has
// removed the holds, or some of them.
func TestHoldsThatAreLost(t *testing.T) {
	t.Parallel()
	script := newBare(t, testenv.Redis(t).Addr)
	limit, now := perDay(100), int64(1_700_000_000_000_000)
	ask := func(after int64, reserves, settles []bucket.HoldCost) bucket.Held {
		r := hold("k", limit, 0, minutes, reserves, settles)
		now += after
		r.At = now
		return *take1(t, script, r).Decisions[0].Held
	}
	ask(0, held(10, 1, 2, 3), nil)
	id := held(0, 2)[0].ID
	script.client.HDel(t.Context(), "holds:k", string(id[:]))
	if h := ask(1, held(1, 4), held(1, 2)); h.Units != 31 || h.Unknown != 1 {
		t.Errorf("a hold was removed by another program: %+v, want 31 units, and a settlement that finds none", h)
	}
	if h := ask(minutes.TTL-1, nil, nil); h.Units != 1 || h.Number != 1 || h.Expired != 2 {
		t.Errorf("the others have expired: %+v, want 1 hold of 1", h)
	}
	script.client.Del(t.Context(), "holds:k")
	if h := ask(1, nil, nil); h.Units != 0 || h.Number != 0 || h.Expired != 0 {
		t.Errorf("the last one was removed: %+v, want none", h)
	}
}

// TestHoldsUseFewCommands checks what Redis does for takes with holds: none reads all holds while none has expired, and
// most set no expiry.
func TestHoldsUseFewCommands(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, PoolSize: 1}) // no second worker connects while commands are counted
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1e6, Window: 1e15}
	answers(t, s)
	take(t.Context(), s, hold("k", limit, 1, minutes, held(1, 0), nil))
	stats := commandStats(t, server)
	for i := range 10 {
		take(t.Context(), s, hold("k", limit, 0, minutes, held(1, i+1), nil), hold("k", limit, 1, minutes, nil, nil),
			hold("k", limit, 0, minutes, nil, held(1, i+1)), ask("plain", limit))
	}
	got := stats()
	if got["pexpire"] < 3 {
		delete(got, "pexpire")
	}
	want := map[string]int{"evalsha": 10, "get": 40, "set": 40, "hget": 20, "hset": 10, "hdel": 10, "time": 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the commands (-want +got):\n%s", diff)
	}
}

// TestLongestListOfHolds reads the answer to a Dry request about as many holds as a bucket can have.
func TestLongestListOfHolds(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Config{URL: testenv.Redis(t).Addr})
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 999_999_999_999_999, Window: 1e15}
	cost := uint64(limit.Requests) / 10_000
	for i := 0; i < 10_000; i += 100 {
		var ids []int
		for k := range 100 {
			ids = append(ids, i+k)
		}
		if o := take(t.Context(), s, hold("k", limit, 0, minutes, held(cost, ids...), nil))[0]; o.Err != nil || !o.Allowed {
			t.Fatalf("hold %d: %+v", i, o)
		}
	}
	dry := hold("k", limit, 0, minutes, nil, nil)
	dry.Dry = true
	begin := time.Now()
	o := take(t.Context(), s, dry)[0]
	if o.Err != nil || len(o.Seen[0].State.Holds.Live()) != 10_000 || o.Decisions[0].Held.Units != int64(10_000*cost) {
		t.Errorf("%v, %d holds of %+v", o.Err, len(o.Seen[0].State.Holds.Live()), o.Decisions)
	}
	t.Logf("the answer took %v", time.Since(begin))
}

// BenchmarkHolds measures what a call of the script for one bucket costs Redis: for a limit without holds, and for one
// with them, while none and while 1,000 are live. The rounds of all rows alternate, and the medians are reported.
func BenchmarkHolds(b *testing.B) {
	script := newBare(b, testenv.Redis(b).Addr)
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 4e9, Burst: 4e9, Window: 3_600_000_000}
	const each = 100
	rows := map[string][]bucket.Request{"no holds/take": {ask("no holds", limit)}}
	for _, live := range []int{0, 1000} {
		key := fmt.Sprintf("%d live", live)
		for i := range live {
			if err := script.take(b.Context(), []bucket.Request{hold(key, limit, 0, minutes, held(1, i), nil)},
				make([]bucket.Outcome, 1)); err != nil {
				b.Fatal(err)
			}
		}
		rows[key+"/take"] = []bucket.Request{hold(key, limit, 1, minutes, nil, nil)}
		rows[key+"/reserve and settle"] = []bucket.Request{
			hold(key, limit, 0, minutes, held(1, live), nil), hold(key, limit, 0, minutes, nil, held(1, live)),
		}
	}
	took := map[string][]float64{}
	for b.Loop() {
		for name, requests := range rows {
			script.client.ConfigResetStat(b.Context())
			_, err := script.client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				for range each {
					for i := range requests {
						keys, args := script.command(requests[i : i+1])
						p.EvalSha(b.Context(), script.sha, keys, "n", args)
					}
				}
				return nil
			})
			_, stats, _ := strings.Cut(script.client.Info(b.Context(), "commandstats").Val(), "cmdstat_evalsha:calls=")
			var calls, micros float64
			if _, failed := fmt.Sscanf(stats, "%f,usec=%f,", &calls, &micros); failed != nil || err != nil {
				b.Fatal(err, failed)
			}
			took[name] = append(took[name], micros/calls)
		}
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], strings.ReplaceAll(name, " ", "-")+"-µs")
	}
}

// TestRestoredHoldsAreReleased lets holds expire that a floor has restored: another replica may have settled them, so
// they are not charged, and dry requests show that. Holds that were reserved, here or without Redis, are charged. A
// restored one can be settled.
func TestRestoredHoldsAreReleased(t *testing.T) {
	t.Parallel()
	const at = 1_700_000_000_000_000
	s := open(t, redisstore.Config{URL: testenv.Redis(t).Addr})
	for _, algorithm := range bucket.Algorithms {
		key, limit := algorithm.String(), perDay(100)
		if limit.Algorithm = algorithm; algorithm.HasBurst() {
			limit.Burst = 100
		}
		decide := func(now int64, r bucket.Request) bucket.Decision {
			t.Helper()
			r.At = now
			o := take(t.Context(), s, r)[0]
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			return o.Decisions[0]
		}
		restored := new(bucket.Holds)
		for id := range 2 {
			restored.Add(bucket.HoldCost{ID: holdID(id), Cost: 20, Expires: at + minutes.TTL/2})
		}
		request := hold(key, limit, 0, minutes, held(3, 7), nil)
		unsent := new(bucket.Holds)
		unsent.Add(bucket.HoldCost{ID: holdID(2), Cost: 10, Expires: at + minutes.TTL/4})
		request.Takes[0].Floor = &bucket.Floor{State: bucket.State{Holds: restored}, Unsent: unsent, At: at}
		if d := decide(at, request); d.Held.Units != 53 || d.Held.Number != 4 {
			t.Errorf("%v: %+v, want 53 units in 4 holds", algorithm, d.Held)
		}
		if d := decide(at+1, hold(key, limit, 0, minutes, nil, held(1, 0))); d.Held.Settled != 1 || d.Held.Units != 33 {
			t.Errorf("%v, after a settlement: %+v, want 33 units", algorithm, d.Held)
		}
		look := hold(key, limit, 0, minutes, nil, nil)
		if d := decide(at+minutes.TTL/4, look); d.Held.Expired != 1 || d.Remaining != 66 {
			t.Errorf("%v, after the unsent hold has expired: %+v, want 66 of 100 left", algorithm, d)
		}
		dry := look
		dry.Dry = true
		seen, d := decide(at+minutes.TTL/2, dry), decide(at+minutes.TTL/2, look)
		if d.Held.Units != 3 || d.Held.Expired != 1 || d.Remaining < 86 || seen.Remaining != d.Remaining {
			t.Errorf("%v, after the restored hold has expired: %+v, %+v if dry, want 86 of 100 left", algorithm, d, seen)
		}
		if before := d.Remaining; decide(at+minutes.TTL, look).Remaining > before {
			t.Errorf("%v: a hold that was reserved is not charged", algorithm)
		}
	}
}

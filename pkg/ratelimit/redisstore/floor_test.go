package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// withFloor asks for units of a bucket with a floor.
func withFloor(key string, limit bucket.Limit, units uint64, f *bucket.Floor) (r bucket.Request) {
	r.Add(bucket.Take{Key: key, Limit: limit, Cost: units, Floor: f})
	return r
}

// floorOf returns the floor that remembers what an answer has shown.
func floorOf(o bucket.Outcome) *bucket.Floor {
	seen := o.Seen[0]
	return &bucket.Floor{State: seen.State.Clone(), At: seen.Clock, Cut: seen.Cut}
}

// limits returns a limit of each algorithm that does not refill while a test runs.
func limits(requests int64) (all []bucket.Limit) {
	for _, a := range bucket.Algorithms {
		l := perDay(requests)
		l.Algorithm, l.Window = a, 300*l.Window
		all = append(all, l)
	}
	return append(all, bucket.Limit{
		Algorithm: bucket.CalendarWindow, Requests: requests, Window: 365 * 86_400_000_000,
		Calendar: bucket.NewCalendar("year", time.UTC),
	})
}

// TestFloor checks that a floor restores a bucket that Redis has lost, and that it does no harm otherwise: late,
// repeated, or in a bucket that has been charged since.
func TestFloor(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	for _, limit := range limits(10) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			key := t.Name()
			early := floorOf(take(t.Context(), s, withFloor(key, limit, 3, nil))[0])
			late := floorOf(take(t.Context(), s, withFloor(key, limit, 4, nil))[0])
			do(t, server, "DEL", key)
			takeOne(t, s, key, limit)
			for i, step := range []struct {
				floor *bucket.Floor
				left  int64
			}{
				// The log knows that the unit since the loss is not one of the 7 before it.
				{nil, 9}, {early, 7}, {late, 3}, {late, 3}, {early, 3}, {nil, 3},
			} {
				if limit.Algorithm == bucket.SlidingWindowLog && step.left < 9 {
					step.left--
				}
				o := take(t.Context(), s, withFloor(key, limit, 0, step.floor))[0]
				want := bucket.FloorUnsent
				if step.floor != nil {
					want = bucket.FloorJoined
				}
				if o.Err != nil || o.Decisions[0].Remaining != step.left || o.Seen[0].Floor != want {
					t.Errorf("step %d: %+v, want %d left, and the fate %d", i, o, step.left, want)
				}
			}
		})
	}
}

// TestCutFloor checks the floor of a log of which an answer has shown only a part. It restores what is missing. It adds
// nothing to what is there, although the times of most units are not known.
func TestCutFloor(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	limit := perDay(1000)
	limit.Algorithm = bucket.SlidingWindowLog
	client := dial(t, server.Addr)
	var half string
	var shown bucket.Outcome
	for i := range 300 {
		if shown = take(t.Context(), s, withFloor("k", limit, 1, nil))[0]; shown.Err != nil {
			t.Fatal(shown.Err)
		}
		if i == 150 {
			half = client.Dump(t.Context(), "k").Val()
		}
	}
	floor := floorOf(shown)
	if !floor.Cut {
		t.Fatalf("the answer shows the whole log: %+v", shown.Seen[0])
	}
	check := func(what string, left int64) {
		t.Helper()
		for range 2 {
			o := take(t.Context(), s, withFloor("k", limit, 0, floor))[0]
			if o.Err != nil || o.Decisions[0].Remaining != left || o.Seen[0].Floor != bucket.FloorJoined {
				t.Errorf("%s: %+v, want %d left", what, o.Decisions, left)
			}
		}
	}
	check("nothing is lost", 700)
	if err := client.RestoreReplace(t.Context(), "k", 0, half).Err(); err != nil {
		t.Fatal(err)
	}
	takeOne(t, s, "k", limit)
	check("the second half is lost", 699)
	do(t, server, "DEL", "k")
	takeOne(t, s, "k", limit)
	check("all is lost", 699)
}

// TestFloorDenies checks that a floor is joined before the take is judged, and stored although the take is denied.
func TestFloorDenies(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	for _, limit := range limits(10) {
		key := "denies " + limit.Algorithm.String()
		full := floorOf(take(t.Context(), s, withFloor(key, limit, 10, nil))[0])
		do(t, server, "FLUSHALL")
		for _, f := range []*bucket.Floor{full, nil} {
			if o := take(t.Context(), s, withFloor(key, limit, 1, f))[0]; o.Err != nil || o.Allowed {
				t.Errorf("%s: %+v, want it denied", limit.Algorithm, o)
			}
		}
	}
}

// TestRefundVoidsFloors checks that a refund voids the floors from before it, and no others. So does a charge that is
// given back.
func TestRefundVoidsFloors(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	for _, limit := range limits(10) {
		for _, givesBack := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", limit.Algorithm, givesBack), func(t *testing.T) {
				key := t.Name()
				charged := take(t.Context(), s, withFloor(key, limit, 8, nil))[0]
				before := floorOf(charged)
				refund := bucket.Take{Key: key, Limit: limit, Refund: 5}
				if givesBack {
					refund.ChargedAt = charged.Decisions[0].ChargedAt
				}
				after := take(t.Context(), s, bucket.Request{Takes: []bucket.Take{refund}})[0]
				if after.Err != nil || after.Decisions[0].Remaining != 7 {
					t.Fatalf("after the refund: %+v, want 7 left", after)
				}
				check := func(f *bucket.Floor, fate bucket.Fate, left int64) {
					t.Helper()
					o := take(t.Context(), s, withFloor(key, limit, 0, f))[0]
					if o.Err != nil || o.Decisions[0].Remaining != left || o.Seen[0].Floor != fate {
						t.Errorf("%+v: %+v, want %d left, and the fate %d", *f, o, left, fate)
					}
				}
				check(before, bucket.FloorVoided, 7)
				do(t, server, "DEL", key)
				check(before, bucket.FloorVoided, 10)
				next := floorOf(take(t.Context(), s, withFloor(key, limit, 1, nil))[0])
				do(t, server, "DEL", key)
				check(next, bucket.FloorJoined, 9)
				do(t, server, "FLUSHALL") // the note is lost, too
				check(before, bucket.FloorJoined, 2)
			})
		}
	}
}

// TestNoteLives checks that a note lives as long as the bucket before the refund, also after a later and smaller one.
func TestNoteLives(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, KeyPrefix: "p:"})
	client := dial(t, server.Addr)
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 10, Burst: 10, Window: 1_000_000_000}
	take(t.Context(), s, withFloor("p:k", limit, 10, nil))
	for range 3 {
		o := take(t.Context(), s, bucket.Request{Takes: []bucket.Take{{Key: "p:k", Limit: limit, Refund: 5}}})[0]
		ttl := client.PTTL(t.Context(), redisstore.NoteOf("p:", "p:k")).Val()
		if o.Err != nil || ttl.Seconds() < 900 || ttl.Seconds() > 1002 {
			t.Errorf("%+v; the note lives for %v, want 1000 s", o, ttl)
		}
	}
	// Nothing is noted if there is nothing to give back.
	take(t.Context(), s, bucket.Request{Takes: []bucket.Take{{Key: "p:unused", Limit: limit, Refund: 5}}})
	if n := client.Exists(t.Context(), redisstore.NoteOf("p:", "p:unused")).Val(); n != 0 {
		t.Error("a refund of nothing is noted")
	}
}

// TestUnusableFloors checks that a floor that cannot be read, or whose clock is far away, is ignored: the request is
// decided as without it, and the answer tells.
func TestUnusableFloors(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	now := takeOne(t, s, "clock", perDay(10)).Seen[0].Clock
	const much = 2*bucket.MaxWindowRequests + 1 // more than a window or a log can hold
	log := []bucket.Algorithm{bucket.SlidingWindowLog}
	windows := append(log, bucket.SlidingWindowCounter, bucket.FixedWindow, bucket.CalendarWindow)
	for _, limit := range limits(10) {
		for name, c := range map[string]struct {
			state bucket.State
			ahead int64              // of the clock
			of    []bucket.Algorithm // nil: of all
		}{
			"negative time":     {state: bucket.State{Last: -1, Count: 3}},
			"no whole time":     {state: bucket.State{Last: 1 << 53, Count: 3}},
			"largest numbers":   {state: bucket.State{Last: 1<<63 - 1, Count: 1<<63 - 1, Part: 1<<63 - 1, Rate: 1<<63 - 1}},
			"negative count":    {state: bucket.State{Last: now, Count: -3}},
			"a clock far ahead": {state: bucket.State{Last: now, Count: 3}, ahead: 86_400_000_000 + 10_000_000_000},
			"no whole debt":     {state: bucket.State{Last: now, Count: 1 << 53}},
			"a part of nothing": {state: bucket.State{Last: now, Count: much, Part: 7}},
			"too much":          {state: bucket.State{Last: now, Count: much}, of: windows},
			"another sum":       {state: logOf(now, 3, bucket.Grant{At: now, Cost: 2}), of: log},
			"disordered entries": {
				state: logOf(now, 4, bucket.Grant{At: now, Cost: 2}, bucket.Grant{At: now - 9, Cost: 2}), of: log,
			},
			"negative entries": {
				state: logOf(now, 4, bucket.Grant{At: now - 9, Cost: 5}, bucket.Grant{At: now, Cost: -1}), of: log,
			},
		} {
			if c.of != nil && !slices.Contains(c.of, limit.Algorithm) {
				continue
			}
			t.Run(limit.Algorithm.String()+"/"+name, func(t *testing.T) {
				key := t.Name()
				takeOne(t, s, key, limit)
				floor := &bucket.Floor{State: c.state, At: now + c.ahead}
				neighbour := withFloor("neighbour "+key, limit, 1, &bucket.Floor{At: now})
				all := take(t.Context(), s, neighbour, withFloor(key, limit, 1, floor), neighbour)
				if o := all[1]; o.Err != nil || o.Decisions[0].Remaining != 8 || o.Seen[0].Floor != bucket.FloorUnusable {
					t.Errorf("%+v, want 8 left and the fate %d", o, bucket.FloorUnusable)
				}
				if o := all[2]; o.Err != nil || o.Decisions[0].Remaining != 8 || o.Seen[0].Floor != bucket.FloorJoined {
					t.Errorf("the neighbour: %+v, want 8 left", o)
				}
			})
		}
	}
}

// logOf returns a log with some units in all, whatever its entries are.
func logOf(last, units int64, grants ...bucket.Grant) bucket.State {
	return bucket.State{Last: last, Count: units, Grants: grants}
}

// TestForeignNotes checks that a foreign value in place of a note voids nothing, and that the next note replaces it.
func TestForeignNotes(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	note := redisstore.NoteOf("", "k")
	floor := floorOf(take(t.Context(), s, withFloor("k", perDay(10), 3, nil))[0])
	for _, put := range [][]string{
		{"SET", note, "garbage"},
		{"SET", note, "r1 99999999999999999 99999999999999999"},
		{"SET", note, "r1 -1 -1"},
		{"LPUSH", note, "a"},
	} {
		do(t, server, "DEL", "k", note)
		do(t, server, put...)
		if o := take(t.Context(), s, withFloor("k", perDay(10), 0, floor))[0]; o.Err != nil || o.Decisions[0].Remaining != 7 {
			t.Errorf("%q: %+v, want 7 left", put, o)
		}
		o := take(t.Context(), s, bucket.Request{Takes: []bucket.Take{{Key: "k", Limit: perDay(10), Refund: 1}}})[0]
		if o.Err != nil || o.Decisions[0].Remaining != 8 {
			t.Errorf("a refund, %q: %+v, want 8 left", put, o)
		}
	}
}

// TestNotesOfFailedRequests checks that each take finds its own note, also behind a request that failed.
func TestNotesOfFailedRequests(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr})
	do(t, server, "LPUSH", "foreign", "a")
	floor := floorOf(take(t.Context(), s, withFloor("k", perDay(10), 3, nil))[0])
	var failing bucket.Request
	failing.Add(bucket.Take{Key: "foreign", Limit: perDay(10), Cost: 1, Floor: floor})
	failing.Add(bucket.Take{Key: "a", Limit: perDay(10), Cost: 1, Floor: floor})
	failing.Add(bucket.Take{Key: "b", Limit: perDay(10), Cost: 1})
	failing.Add(bucket.Take{Key: "c", Limit: perDay(10), Refund: 2})
	refund := bucket.Request{Takes: []bucket.Take{{Key: "k", Limit: perDay(10), Refund: 1}}}
	late := withFloor("k", perDay(10), 0, floor)
	all := take(t.Context(), s, withFloor("d", perDay(10), 1, floor), failing, refund, late)
	if all[1].Err == nil || all[0].Err != nil || all[2].Err != nil || all[3].Err != nil {
		t.Fatalf("%+v, want an error of the second request only", all)
	}
	if o := all[3]; o.Seen[0].Floor != bucket.FloorVoided || o.Decisions[0].Remaining != 8 {
		t.Errorf("after a refund: %+v, want 8 left", o)
	}
	if o := all[0]; o.Seen[0].Floor != bucket.FloorJoined || o.Decisions[0].Remaining != 6 {
		t.Errorf("another bucket with the floor: %+v, want 6 left", o)
	}
	if _, err := server.Do("GET", redisstore.NoteOf("", "k")); err != nil {
		t.Errorf("the note: %v", err)
	}
}

// TestNotesInCluster checks floors, refunds and charges that are given back with keys of all kinds in a cluster: Redis
// refuses a script call with a note in another slot.
func TestNotesInCluster(t *testing.T) {
	cluster := testenv.Cluster(t)
	for _, prefix := range []string{"", "shop:", "{shop}:", "a{b", "}{", "{}", "{", "rl:r{"} {
		t.Run(prefix, func(t *testing.T) {
			s := open(t, redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs(), KeyPrefix: prefix})
			for _, name := range []string{
				"rl:5:hello", "rl:{user}5:hello", "rl:5:{x", "rl:5:}x{", "rl:5:{}x", "rl:5:{}{y}", "rl:{}5:a", "rl:5:a{b}c{d}", "",
				"rl:r{", "\x00\xff{\n}",
			} {
				key := prefix + name
				limit := perDay(10)
				charged := take(t.Context(), s, withFloor(key, limit, 6, nil))[0]
				refund := bucket.Take{Key: key, Limit: limit, Refund: 2, ChargedAt: charged.Decisions[0].ChargedAt}
				refunded := take(t.Context(), s, bucket.Request{Takes: []bucket.Take{refund}})[0]
				if charged.Err != nil || refunded.Err != nil || refunded.Decisions[0].Remaining != 6 {
					t.Fatalf("%q: %+v, %+v, want 6 left", key, charged, refunded)
				}
				o := take(t.Context(), s, withFloor(key, limit, 0, floorOf(charged)))[0]
				if o.Err != nil || o.Seen[0].Floor != bucket.FloorVoided {
					t.Errorf("%q: %+v, want the floor voided", key, o)
				}
				note := redisstore.NoteOf(prefix, key)
				if n, err := cluster.MasterOf(key).Do("EXISTS", note); n != "1" || !strings.HasPrefix(note, prefix+"rl:r{") {
					t.Errorf("%q: the note %q: %q, %v", key, note, n, err)
				}
			}
			do(t, cluster.Masters[0], "FLUSHALL")
			do(t, cluster.Masters[1], "FLUSHALL")
			do(t, cluster.Masters[2], "FLUSHALL")
		})
	}
}

// TestNoteOf checks the names of notes of many keys: each in the slot of its bucket, with the prefix, and its own.
func TestNoteOf(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	text := func(most int) string {
		var b strings.Builder
		for range random.IntN(most) {
			b.WriteByte("{}ab:r0\x00\xff"[random.IntN(9)])
		}
		return b.String()
	}
	for range 300 {
		prefix := text(6)
		names := map[string]string{}
		for range 100 {
			key := prefix + "rl:" + text(20)
			name := redisstore.NoteOf(prefix, key)
			if redisstore.SlotOf(name) != redisstore.SlotOf(key) || !strings.HasPrefix(name, prefix+"rl:r{") {
				t.Fatalf("the prefix %q: the note of %q is %q, in slot %d instead of %d",
					prefix, key, name, redisstore.SlotOf(name), redisstore.SlotOf(key))
			}
			if other, ok := names[name]; ok && other != key {
				t.Fatalf("the prefix %q: %q and %q have the note %q", prefix, key, other, name)
			}
			names[name] = key
		}
	}
}

// TestFloorInMovingSlot checks that a floor that cannot be sent while a slot moves is reported as not sent.
func TestFloorInMovingSlot(t *testing.T) {
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	from := cluster.MasterOf("k")
	to := cluster.Masters[0]
	if to == from {
		to = cluster.Masters[1]
	}
	floor := floorOf(take(t.Context(), s, withFloor("k", perDay(10), 3, nil))[0])
	refund := bucket.Request{Takes: []bucket.Take{{Key: "k", Limit: perDay(10), Refund: 1}}}
	cluster.BeginMove("k", from, to)
	check := func(what string, left int64) {
		t.Helper()
		o := take(t.Context(), s, withFloor("k", perDay(10), 0, floor))[0]
		if o.Err != nil || o.Seen[0].Floor != bucket.FloorUnsent || o.Decisions[0].Remaining != left {
			t.Errorf("%s: %+v, want %d left and no floor sent", what, o, left)
		}
	}
	check("before its key has moved", 7)
	if o := take(t.Context(), s, refund)[0]; o.Err != nil || o.Decisions[0].Remaining != 8 {
		t.Errorf("a refund while the slot moves: %+v", o)
	}
	cluster.MoveKey("k", from, to)
	check("after its key has moved", 8)
	cluster.EndMove("k", from, to)
	o := take(t.Context(), s, withFloor("k", perDay(10), 0, floor))[0]
	if o.Err != nil || o.Seen[0].Floor == bucket.FloorUnsent {
		t.Errorf("after the move: %+v, want the floor sent", o)
	}
}

// TestSpreadShows checks what the answers show of a request in several places: a floor that was joined, and a charge
// that was given back.
func TestSpreadShows(t *testing.T) {
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	keys := inEach(cluster, "shows")
	used := floorOf(take(t.Context(), s, withFloor(keys[0], perDay(10), 4, nil))[0])
	take(t.Context(), s, withFloor(keys[1], perDay(1), 1, nil))
	do(t, cluster.MasterOf(keys[0]), "DEL", keys[0])
	var r bucket.Request
	r.Add(bucket.Take{Key: keys[0], Limit: perDay(10), Cost: 2, Floor: used})
	r.Add(bucket.Take{Key: keys[1], Limit: perDay(1), Cost: 1})
	r.Add(bucket.Take{Key: keys[2], Limit: perDay(10), Cost: 3})
	for _, fate := range []bucket.Fate{bucket.FloorJoined, bucket.FloorVoided} { // the first time, a charge is given back
		o := take(t.Context(), s, r)[0]
		if o.Err != nil || o.Allowed || len(o.Seen) != 3 {
			t.Fatalf("%+v, want it denied, and 3 buckets shown", o)
		}
		for i, want := range []int64{4, 1, 0} {
			limit := &r.Takes[i].Limit
			if got := o.Seen[i].State.Used(limit, o.Seen[i].Clock); got != want || o.Seen[i].Sent.IsZero() {
				t.Errorf("bucket %d: %d used, want %d: %+v", i, got, want, o.Seen[i])
			}
		}
		if o.Seen[0].Floor != fate || o.Seen[1].Floor != bucket.FloorUnsent {
			t.Errorf("the fates %d, %d, want %d, %d", o.Seen[0].Floor, o.Seen[1].Floor, fate, bucket.FloorUnsent)
		}
	}
}

// TestPermissions checks that the ACL which the service recommends is enough for buckets, notes, holds and epochs, and
// that it allows no other keys.
func TestPermissions(t *testing.T) {
	server := testenv.Redis(t)
	help := redisstore.LoginHelp(errors.New("NOPERM"), "shop:rl:")
	_, rules, _ := strings.Cut(help, "<password> ")
	rules, _, _ = strings.Cut(rules, ";")
	do(t, server, append([]string{"ACL", "SETUSER", "limited", "on", ">secret"}, strings.Fields(rules)...)...)
	s := open(t, redisstore.Config{URL: server.Addr, Username: "limited", Password: "secret", KeyPrefix: "shop:"})
	charged := take(t.Context(), s, withFloor("shop:rl:k", perDay(10), 4, nil))[0]
	refund := bucket.Request{Takes: []bucket.Take{{Key: "shop:rl:k", Limit: perDay(10), Refund: 1}}}
	refunded := take(t.Context(), s, refund)[0]
	if charged.Err != nil || refunded.Err != nil {
		t.Fatalf("with the recommended ACL: %v, %v", charged.Err, refunded.Err)
	}
	o := take(t.Context(), s, withFloor("shop:rl:k", perDay(10), 1, floorOf(charged)))[0]
	if o.Err != nil || o.Seen[0].Floor != bucket.FloorVoided {
		t.Errorf("a floor: %+v", o)
	}
	all := hold("shop:rl:h", perDay(10), 0, minutes, nil, nil)
	all.Dry = true
	for i, o := range take(t.Context(), s, hold("shop:rl:h", perDay(10), 0, minutes, held(1, 1, 2), nil),
		hold("shop:rl:h", perDay(10), 0, minutes, nil, held(1, 1)), all) {
		if o.Err != nil || o.Decisions[0].Held.Number != []int64{2, 1, 1}[i] {
			t.Errorf("request %d with holds: %+v", i, o)
		}
	}
	before := s.Epoch(&refund.Takes[0])
	endConnections(t, s, server)
	await(t, "an answer over another connection", func() bool {
		return takeOne(t, s, "shop:rl:k", perDay(10)).Err == nil
	})
	if after := s.Epoch(&refund.Takes[0]); after != before {
		t.Errorf("over another connection, the epoch is %d after %d", after, before)
	}
	if err := takeOne(t, s, "other", perDay(10)).Err; err == nil {
		t.Error("a key without the prefix is allowed")
	}
}

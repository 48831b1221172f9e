package rediskeys_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/test/testenv"
)

const pepper = "a server secret of a test"

func newSecret(t testing.TB) *apikey.Secret {
	t.Helper()
	s, err := apikey.NewSecret(pepper, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// connect returns a client without timeouts: on a busy machine, Redis needs seconds for the writes of some tests.
func connect(t testing.TB, server *testenv.RedisServer) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func record(t testing.TB, id string) apikey.Record {
	created := time.Unix(1_770_000_000, 0).UTC()
	return apikey.Record{ID: id, Hash: newSecret(t).Hash(id), Owner: "owner of " + id, Created: created}
}

func ids(c rediskeys.Copy) string {
	var ids []string
	for _, r := range c.Records {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

func TestStore(t *testing.T) {
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "p:", newSecret(t))
	ctx := t.Context()
	empty, err := store.Load(ctx)
	if !reflect.DeepEqual(empty, rediskeys.Copy{}) || err != nil {
		t.Fatalf("%+v, %v", empty, err)
	}
	for _, id := range []string{"bbbbbbbb", "aaaaaaaa"} {
		if err := store.Add(ctx, record(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Add(ctx, record(t, "aaaaaaaa")); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("adding a key again: %v", err)
	}
	two, err := store.Load(ctx)
	if err != nil || ids(two) != "aaaaaaaa bbbbbbbb" || two.Generation == (rediskeys.Generation{}) {
		t.Errorf("%+v, %v", two, err)
	}
	if err := store.Change(ctx, "aaaaaaaa", func(r *apikey.Record) error { r.Disabled = true; return nil }); err != nil {
		t.Fatal(err)
	}
	changed, err := store.Load(ctx)
	if err != nil || !changed.Records[0].Disabled || changed.Records[1].Disabled || changed.Generation == two.Generation {
		t.Errorf("%+v, %v", changed, err)
	}
	err = store.Change(ctx, "cccccccc", func(*apikey.Record) error { return nil })
	if err == nil || err.Error() != "no key with this id" {
		t.Errorf("changing an unknown key: %v", err)
	}
	if err := store.Add(ctx, apikey.Record{ID: "dddddddd", Hash: newSecret(t).Hash("x")}); err == nil {
		t.Error("a key without an owner was added")
	}
	none, err := rediskeys.New(client, "other:", newSecret(t)).Load(ctx)
	if err != nil || len(none.Records) > 0 {
		t.Errorf("%+v, %v", none, err)
	}
}

// TestConcurrentChanges: concurrent goroutines add keys and change one key, and no change is lost.
func TestConcurrentChanges(t *testing.T) {
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "", newSecret(t))
	if err := store.Add(t.Context(), record(t, "shared00")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	retried := func(f func() error) {
		for {
			if err := f(); !errors.Is(err, rediskeys.ErrBusy) {
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
	for i := range 8 {
		all.Go(func() {
			for j := range 10 {
				retried(func() error { return store.Add(t.Context(), record(t, fmt.Sprintf("add%d%04d", i, j))) })
				retried(func() error {
					return store.Change(t.Context(), "shared00", func(r *apikey.Record) error {
						r.Scopes = append(r.Scopes, fmt.Sprintf("%d-%d", i, j))
						return nil
					})
				})
			}
		})
	}
	all.Wait()
	c, err := store.Load(t.Context())
	if err != nil || len(c.Records) != 81 || len(c.Records[80].Scopes) != 80 {
		t.Errorf("%d keys, %d scopes: %v", len(c.Records), len(c.Records[80].Scopes), err)
	}
}

// TestUnreadableKeys: records that another client added are refused, and the other records stay valid.
func TestUnreadableKeys(t *testing.T) {
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "", newSecret(t))
	if err := store.Add(t.Context(), record(t, "aaaaaaaa")); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), "keys", "bbbbbbbb", `{"hash":"ea_canary"}`, "x", "{").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := store.Load(t.Context())
	if err != nil || ids(c) != "aaaaaaaa" || len(c.Refused) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	if text := fmt.Sprint(c.Refused); strings.Contains(text, "canary") {
		t.Error(text)
	}
	if err := store.Change(t.Context(), "bbbbbbbb", func(*apikey.Record) error { return nil }); err == nil {
		t.Error("an unreadable key was changed")
	}
	if err := client.Set(t.Context(), "p:keys", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = rediskeys.New(client, "p:", newSecret(t)).Load(t.Context())
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key of another type: %v", err)
	}
}

// watcher follows a store and keeps the last report.
type watcher struct {
	mu    sync.Mutex
	state string // the ids, or the error
}

func (w *watcher) set(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
}

func (w *watcher) follow(ctx context.Context, store *rediskeys.Store) {
	last := ""
	store.Follow(ctx, rediskeys.Generation{}, func(p rediskeys.Poll) {
		switch {
		case !p.News:
		case p.Err == nil:
			w.set("up: " + last)
		case errors.Is(p.Err, rediskeys.ErrLost):
			w.set("lost, was " + last)
		case errors.Is(p.Err, rediskeys.ErrTooLarge):
			w.set("too large, was " + last)
		default:
			w.set("down, was " + last)
		}
		if p.Keys != nil {
			last = ids(*p.Keys)
			w.set(last)
		}
	})
}

func (w *watcher) reports(want string) func() error {
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.state != want {
			return fmt.Errorf("the last report is %q, want %q", w.state, want)
		}
		return nil
	}
}

// TestFollow: Follow reports changes, reports an outage and a loss once, and reports the keys after them.
func TestFollow(t *testing.T) {
	server := testenv.Redis(t)
	store := rediskeys.New(connect(t, server), "", newSecret(t))
	var w watcher
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.follow(ctx, store) })
	defer done.Wait()
	defer cancel()
	add := func(id string) {
		t.Helper()
		if err := store.Add(t.Context(), record(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	add("aaaaaaaa")
	testenv.Eventually(t, w.reports("aaaaaaaa"), "the first key")
	add("bbbbbbbb")
	testenv.Eventually(t, w.reports("aaaaaaaa bbbbbbbb"), "the second key")
	server.Kill()
	testenv.Eventually(t, w.reports("down, was aaaaaaaa bbbbbbbb"), "the report of the outage")
	server.Restart()
	testenv.Eventually(t, w.reports("lost, was aaaaaaaa bbbbbbbb"), "the report of what the outage has lost")
	testenv.Eventually(t, func() error { return store.Add(t.Context(), record(t, "cccccccc")) }, "a new key")
	testenv.Eventually(t, w.reports("cccccccc"), "the key after the outage")
	client := connect(t, server)
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, w.reports("lost, was cccccccc"), "the report of the loss")
	add("cccccccc")
	testenv.Eventually(t, w.reports("cccccccc"), "the key that was added again")
}

// TestTooLarge: garbage of a user of Redis, which would exhaust the memory of replicas, is not read. After the garbage
// is gone, the keys can be loaded again.
func TestTooLarge(t *testing.T) {
	client := connect(t, testenv.Redis(t, "--proto-max-bulk-len", "512mb"))
	store := rediskeys.New(client, "", newSecret(t))
	if err := store.Add(t.Context(), record(t, "aaaaaaaa")); err != nil {
		t.Fatal(err)
	}
	good, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seal := client.HGet(t.Context(), "keys", ":generation").Val()
	const garbage = 64 << 20
	for _, c := range []struct{ name, script, want string }{
		{
			"a value", "redis.call('HSET', 'keys', 'garbage', string.rep('x', ARGV[1]))",
			`field "garbage" has more than 16384 bytes`,
		},
		{"a name", "redis.call('HSET', 'keys', string.rep('x', ARGV[1]), '')", `field "xxx`},
		{
			"the seal", "redis.call('HSET', 'keys', ':generation', string.rep('x', ARGV[1]))",
			`field ":generation" has more than 16384 bytes`,
		},
		{"many records", "for i = 1, ARGV[1] / 256 do redis.call('HSET', 'keys', i, '') end", "more than 200000 records"},
	} {
		script := c.script + " redis.call('HSET', 'keys', ':changed', 'x') return 1"
		if err := client.Eval(t.Context(), script, nil, garbage).Err(); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := store.Load(t.Context())
		runtime.ReadMemStats(&after)
		if !errors.Is(err, rediskeys.ErrTooLarge) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v", c.name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", c.name, n)
		}
		if err := store.Add(t.Context(), record(t, "bbbbbbbb")); !errors.Is(err, rediskeys.ErrTooLarge) {
			t.Errorf("%s: a key was added: %v", c.name, err)
		}
		record := client.HGet(t.Context(), "keys", "aaaaaaaa").Val()
		client.Del(t.Context(), "keys")
		client.HSet(t.Context(), "keys", "aaaaaaaa", record, ":generation", seal)
		if again, err := store.Load(t.Context()); err != nil || again.Generation != good.Generation {
			t.Errorf("%s was removed: %+v, %v", c.name, again, err)
		}
	}
}

// TestFollowTooLarge: Follow reports garbage that is too large once, keeps the copy, and goes on after its removal.
func TestFollowTooLarge(t *testing.T) {
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "", newSecret(t))
	if err := store.Add(t.Context(), record(t, "aaaaaaaa")); err != nil {
		t.Fatal(err)
	}
	var w watcher
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.follow(ctx, store) })
	defer done.Wait()
	defer cancel()
	testenv.Eventually(t, w.reports("aaaaaaaa"), "the key")
	seal := client.HGet(ctx, "keys", ":generation").Val()
	if err := client.HSet(ctx, "keys", "garbage", strings.Repeat("x", 1<<20), ":generation", "x").Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, w.reports("too large, was aaaaaaaa"), "the report of the garbage")
	client.HDel(ctx, "keys", "garbage")
	client.HSet(ctx, "keys", ":generation", seal)
	testenv.Eventually(t, w.reports("up: aaaaaaaa"), "the key without the garbage")
}

// TestLargeRecords: a record that is too large to be read again is not written.
func TestLargeRecords(t *testing.T) {
	store := rediskeys.New(connect(t, testenv.Redis(t)), "", newSecret(t))
	large := record(t, "aaaaaaaa")
	for i := range 100 {
		large.Scopes = append(large.Scopes, fmt.Sprintf("%0200d", i))
	}
	if err := store.Add(t.Context(), large); err == nil || !strings.Contains(err.Error(), "fewer or shorter") {
		t.Error(err)
	}
	large.Scopes = large.Scopes[:70]
	if err := store.Add(t.Context(), large); err != nil {
		t.Error(err)
	}
	if c, err := store.Load(t.Context()); err != nil || len(c.Records) != 1 {
		t.Errorf("%d keys, %v", len(c.Records), err)
	}
}

// TestAcceptKeepsVersions: a new seal is newer than all records, also if the previous seal cannot be read and the clock
// of another machine was ahead.
func TestAcceptKeepsVersions(t *testing.T) {
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "", newSecret(t))
	ahead := record(t, "aaaaaaaa")
	ahead.Version = time.Now().Add(24 * time.Hour).UnixMicro()
	data, err := ahead.Encode()
	if err != nil {
		t.Fatal(err)
	}
	sealed := newSecret(t).Seal(data, "record", "keys", ahead.ID)
	if err := client.HSet(t.Context(), "keys", ahead.ID, sealed, ":generation", "garbage").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := store.Load(t.Context())
	if !errors.Is(err, rediskeys.ErrUnsigned) {
		t.Fatal(err)
	}
	if _, _, err := store.Sign(t.Context(), c.State()); err != nil {
		t.Fatal(err)
	}
	if c, err = store.Load(t.Context()); err != nil || len(c.Records) != 1 || c.Records[0].Version <= ahead.Version {
		t.Errorf("%+v, want a version after %d: %v", c.Records, ahead.Version, err)
	}
}

// TestManyKeys: 20,000 keys are signed at once, and read in pieces.
func TestManyKeys(t *testing.T) {
	const count = 20_000
	client := connect(t, testenv.Redis(t))
	store := rediskeys.New(client, "", newSecret(t))
	pipe := client.Pipeline()
	for i := range count { // as a version of this service wrote them that did not sign
		id := fmt.Sprintf("k%07d", i)
		data, err := record(t, id).Encode()
		if err != nil {
			t.Fatal(err)
		}
		pipe.HSet(t.Context(), "keys", id, data)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	unsigned, err := store.Load(t.Context())
	if !errors.Is(err, rediskeys.ErrUnsigned) || len(unsigned.Records) > 0 {
		t.Fatalf("%d keys, %v", len(unsigned.Records), err)
	}
	if n, removed, err := store.Sign(t.Context(), unsigned.State()); err != nil || n != count || len(removed) > 0 {
		t.Fatalf("%d keys signed, %v, %v", n, removed, err)
	}
	c, err := store.Load(t.Context())
	if err != nil || len(c.Records) != count || c.Records[count-1].ID != fmt.Sprintf("k%07d", count-1) {
		t.Fatalf("%d keys, %v", len(c.Records), err)
	}
	if err := store.Add(t.Context(), record(t, "another0")); err != nil {
		t.Fatal(err)
	}
}

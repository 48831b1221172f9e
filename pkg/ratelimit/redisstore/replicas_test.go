package redisstore_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// often is a Config.CountEvery for tests that await a number. If the machine is busy, entries may expire.
const often = 50 * time.Millisecond

// member is a replica that counts the others.
type member struct {
	*redisstore.Store
	end func() // as SIGTERM does

	mu       sync.Mutex
	counts   []int
	refusals []error
}

func join(t *testing.T, cfg redisstore.Config) *member {
	t.Helper()
	if cfg.CountEvery == 0 {
		cfg.CountEvery = often
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = patient
	}
	s, err := redisstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{Store: s}
	m.end = sync.OnceFunc(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(m.end)
	m.CountReplicas(func(n int, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.refusals = append(m.refusals, err)
			return
		}
		m.counts = append(m.counts, n)
	})
	return m
}

// read returns the numbers that the replica has read.
func (m *member) read() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.counts)
}

func (m *member) refused() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refusals)
}

// awaitCounts waits until all replicas have read the number last.
func awaitCounts(t *testing.T, want int, members ...*member) {
	t.Helper()
	testenv.Eventually(t, func() error {
		for i, m := range members {
			if counts := m.read(); len(counts) == 0 || counts[len(counts)-1] != want {
				return fmt.Errorf("replica %d has read %v", i, counts[max(0, len(counts)-5):])
			}
		}
		return nil
	}, fmt.Sprintf("%d replicas to count %d", len(members), want))
}

// TestReplicasComeAndGo has replicas start, end and be killed. The others count them while they run.
func TestReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	cfg := redisstore.Config{URL: server.Addr, KeyPrefix: "shop:"}
	first := join(t, cfg)
	awaitCounts(t, 1, first)
	second := join(t, cfg)
	awaitCounts(t, 2, first, second)

	var killed atomic.Bool
	lives := func([]byte) bool { return !killed.Load() }
	through := testenv.Proxy(t, server.Addr, func() (toServer, fromServer testenv.Pass) { return lives, lives })
	third := join(t, redisstore.Config{URL: through, KeyPrefix: "shop:"})
	awaitCounts(t, 3, first, second, third)
	killed.Store(true)
	awaitCounts(t, 2, first, second)
	awaitCounts(t, 3, third) // the number that it has read last

	second.end()
	awaitCounts(t, 1, first)
	other := join(t, redisstore.Config{URL: server.Addr, KeyPrefix: "other:"})
	awaitCounts(t, 1, first, other)
	await(t, "shop:rl:replicas to be the only key with the prefix", func() bool { // it expires 150 ms after a count
		keys, _ := server.Do("KEYS", "shop:*")
		return keys == "shop:rl:replicas"
	})
	first.end()
	await(t, "the set to expire", func() bool {
		keys, err := server.Do("KEYS", "shop:*")
		return keys == "" && err == nil
	})

	last := join(t, redisstore.Config{URL: server.Addr, KeyPrefix: "last:", CountEvery: time.Hour})
	awaitCounts(t, 1, last)
	last.end()
	if left, err := server.Do("ZCOUNT", "last:rl:replicas", "1", "+inf"); left != "0" || err != nil {
		t.Errorf("a replica that has ended still counts: %s (%v)", left, err)
	}
}

// TestRollingUpdate replaces three replicas one by one, each after its successor has started. Each replica reads the
// number at its start. None reads a smaller number than that of the replicas that run.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	cfg := redisstore.Config{URL: server.Addr, CountEvery: time.Second}
	old := []*member{join(t, cfg), join(t, cfg), join(t, cfg)}
	awaitCounts(t, 3, old...)
	before := make([]int, len(old))
	for i, m := range old {
		before[i] = len(m.read())
	}
	all := slices.Clone(old)
	for i := range old {
		all = append(all, join(t, cfg))
		awaitCounts(t, 4, all[i:]...)
		if counts := all[i+3].read(); counts[0] != 4 {
			t.Errorf("a new replica has read %v, want 4 at once", counts)
		}
		all[i].end()
		awaitCounts(t, 3, all[i+1:]...)
	}
	for i, m := range all {
		counts := m.read()
		if i < len(old) {
			counts = counts[before[i]:]
		}
		if slices.Min(counts) < 3 {
			t.Errorf("replica %d has read %v while three were running", i, counts)
		}
	}
}

// TestSetOfReplicasLost empties Redis, and lets its clock seem to step. No number becomes smaller until all replicas
// have entered again.
func TestSetOfReplicasLost(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	cfg := redisstore.Config{URL: server.Addr, CountEvery: time.Second}
	members := []*member{join(t, cfg), join(t, cfg), join(t, cfg)}
	awaitCounts(t, 3, members...)
	begin := make([]int, len(members))
	for i, m := range members {
		begin[i] = len(m.read())
	}
	admin := dial(t, server.Addr)
	dated := func(at time.Time) func() {
		return func() {
			words := []string{"ZADD", "rl:replicas"}
			for _, id := range admin.ZRange(t.Context(), "rl:replicas", 0, -1).Val() {
				words = append(words, strconv.FormatInt(at.UnixMilli(), 10), id)
			}
			do(t, server, words...)
		}
	}
	for what, lose := range map[string]func(){
		"FLUSHALL":             func() { do(t, server, "FLUSHALL") },
		"the clock steps on":   dated(time.Now().Add(-time.Hour)),
		"the clock steps back": dated(time.Now().Add(time.Hour)),
	} {
		read := make([]int, len(members))
		for i, m := range members {
			read[i] = len(m.read())
		}
		lose()
		await(t, what+": four more counts", func() bool {
			for i, m := range members {
				if len(m.read()) < read[i]+4 {
					return false
				}
			}
			return true
		})
	}
	for i, m := range members {
		if counts := m.read()[begin[i]:]; slices.Min(counts) != 3 || slices.Max(counts) != 3 {
			t.Errorf("replica %d has read %v, want 3", i, counts)
		}
	}
	do(t, server, "ZADD", "rl:replicas", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10), "of another time")
	members[0].end()
	awaitCounts(t, 2, members[1:]...)

	members[1].end()
	last := members[2]
	awaitCounts(t, 1, last)
	do(t, server, "ZADD", "rl:replicas", strconv.FormatInt(time.Now().UnixMilli(), 10), "one that will not enter again")
	awaitCounts(t, 2, last)
	from := len(last.read())
	do(t, server, "FLUSHALL")
	awaitCounts(t, 1, last)
	if counts := last.read()[from:]; !slices.Equal(counts[max(0, len(counts)-3):], []int{2, 2, 1}) {
		t.Errorf("after a loss it has read %v, want 2, 2, 1", counts)
	}
}

// TestReplicasOfACluster counts in the slot of one key, also while that moves and after its master was killed.
func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	const key = "rl:replicas"
	cluster := testenv.Cluster(t, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
	cfg := redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs(), CountEvery: 200 * time.Millisecond}
	first, second := join(t, cfg), join(t, cfg)
	awaitCounts(t, 2, first, second)
	from := cluster.MasterOf(key)
	at := slices.Index(cluster.Masters, from)
	to := cluster.Masters[(at+1)%len(cluster.Masters)]
	replica := cluster.AddReplica(to)
	cluster.BeginMove(key, from, to)
	cluster.MoveKey(key, from, to)
	cluster.EndMove(key, from, to)
	third := join(t, cfg)
	awaitCounts(t, 3, first, second, third)
	to.Kill()
	awaitMaster(t, replica, "other {"+key+"}")
	fourth := join(t, cfg)
	awaitCounts(t, 4, first, second, third, fourth)
	first.end()
	awaitCounts(t, 3, second, third, fourth)
}

// TestReplicasOfSentinels kills the master. The replicas count at the new one.
func TestReplicasOfSentinels(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	sentinels.Watch()
	cfg := redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs()}
	first, second := join(t, cfg), join(t, cfg)
	awaitCounts(t, 2, first, second)
	sentinels.Master.Kill()
	awaitMaster(t, sentinels.Replica, "other")
	third := join(t, cfg)
	awaitCounts(t, 3, first, second, third)
	third.end()
	awaitCounts(t, 2, first, second)
}

// TestReplicasOfTwoRedis counts at the main Redis only, also while the other one is down.
func TestReplicasOfTwoRedis(t *testing.T) {
	t.Parallel()
	main, other := testenv.Redis(t), testenv.Redis(t)
	cfg := redisstore.Config{URL: main.Addr, PerSecond: &redisstore.Config{URL: other.Addr}}
	first, second := join(t, cfg), join(t, cfg)
	awaitCounts(t, 2, first, second)
	if keys, err := other.Do("KEYS", "*"); keys != "" || err != nil {
		t.Errorf("the Redis of short windows has the keys %q (%v), want none", keys, err)
	}
	other.Kill()
	second.end()
	awaitCounts(t, 1, first)
}

// TestReplicasAndAnOutage has Redis stop. The number stays as it was read last, and a replica that starts reads none,
// until Redis answers again.
func TestReplicasAndAnOutage(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	cfg := redisstore.Config{URL: server.Addr, Timeout: brief}
	first, second := join(t, cfg), join(t, cfg)
	awaitCounts(t, 2, first, second)
	server.Kill()
	third := join(t, cfg)
	for _, m := range []*member{first, second, third} {
		await(t, "the breaker to open", func() bool {
			return errors.Is(takeOne(t, m.Store, "k", perDay(10)).Err, redisstore.ErrUnavailable)
		})
	}
	awaitCounts(t, 2, first, second)
	if got := slices.Concat(third.read(), first.read()); len(third.read()) > 0 || slices.Max(got) > 2 {
		t.Errorf("numbers that were read: %v, and %v by a replica that has started in the outage", got, third.read())
	}
	server.Restart()
	awaitCounts(t, 3, first, second, third)
	for i, m := range []*member{first, second, third} {
		if refused := m.refused(); len(refused) > 0 {
			t.Errorf("replica %d reports %v, want no report of an outage", i, refused)
		}
	}
}

// TestReplicasWithoutTheRight counts with a user who may not. It is reported once, with the ACL, which is enough.
func TestReplicasWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	acl := func(rules string) {
		do(t, server, append([]string{"ACL", "SETUSER", "limited"}, strings.Fields(rules)...)...)
	}
	help := redisstore.LoginHelp(errors.New("NOPERM"), "shop:rl:")
	_, rules, _ := strings.Cut(help, "<password> ")
	rules, _, _ = strings.Cut(rules, ";")
	for lacking, reset := range map[string]string{
		"the command in the script": "-zadd", "EVALSHA": "-evalsha -eval", "the key": "resetkeys ~shop:rl:k*",
	} {
		acl("reset on >secret " + rules)
		acl(reset)
		m := join(t, redisstore.Config{URL: server.Addr, Username: "limited", Password: "secret", KeyPrefix: "shop:"})
		await(t, "a report", func() bool { return len(m.refused()) > 0 })
		if err := m.refused()[0]; redisstore.LoginHelp(err, "shop:rl:") != help {
			t.Errorf("without %s: %v, which has no help about the user", lacking, err)
		}
		if len(m.read()) > 0 {
			t.Errorf("without %s: it has read %v", lacking, m.read())
		}
		acl(rules)
		awaitCounts(t, 1, m)
		if n := len(m.refused()); n != 1 {
			t.Errorf("without %s: %d reports, want one", lacking, n)
		}
		m.end()
	}
	for _, other := range []string{ // what Redis 7.0, and Redis 7.2 and Valkey say of a command in the script
		"ERR The user executing the script can't run this command or subcommand script: 2a6a, on @user_script:6.",
		"ERR ACL failure in script: User limited has no permissions to run the 'zadd' command script: 2a6a",
	} {
		if redisstore.LoginHelp(errors.New(other), "shop:rl:") != help {
			t.Errorf("no help about the user for %q", other)
		}
	}
	do(t, server, "SET", "rl:replicas", "another value")
	m := join(t, redisstore.Config{URL: server.Addr})
	await(t, "a report", func() bool { return len(m.refused()) > 0 })
	if err := m.refused()[0]; !strings.Contains(err.Error(), "WRONGTYPE") || redisstore.LoginHelp(err, "rl:") != "" {
		t.Errorf("the key of another value: %v, want WRONGTYPE, which is not about the user", err)
	}
}

// TestForgedCounts answers in place of Redis. Replies that are no number are ignored.
func TestForgedCounts(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]int{ // 0 for none
		":0\r\n":                    0,
		":-9223372036854775808\r\n": 0,
		":9223372036854775807\r\n":  math.MaxInt, // nearstore.Store.SetReplicas bounds it
		":-5\r\n":                   5,
		"$1\r\nx\r\n":               0,
		"$-1\r\n":                   0,
		"*2\r\n:1\r\n:1\r\n":        0,
		"*-1\r\n":                   0,
		"+OK\r\n":                   0,
		"-ERR count\r\n":            0,
		"-LOADING\r\n":              0,
		"-MOVED 1 127.0.0.1:1\r\n":  0,
	} {
		t.Run(strconv.Quote(reply), func(t *testing.T) {
			t.Parallel()
			p := newImpostor(t, "evalsha", forgery{begin: reply})
			m := join(t, redisstore.Config{URL: p.addr, CountEvery: 10 * time.Minute, Timeout: patient})
			await(t, "the reply", func() bool { return p.forged.Load() })
			begin := time.Now()
			m.end() // the impostor answers nothing else on that connection
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it took %v to end", took)
			}
			if got := m.read(); len(got) > 1 || want != 0 && !slices.Equal(got, []int{want}) || want == 0 && len(got) > 0 {
				t.Errorf("it has read %v, want %d", got, want)
			}
		})
	}
}

package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// examineRedis examines a Redis. It leaves out its version, which is that of the machine.
func examineRedis(t *testing.T, cfg redisstore.Config, timeout time.Duration, rules Rules) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg.Timeout = timeout
	r := ExamineRedis(ctx, "REDIS_URL", cfg, rules)
	r.Findings = slices.DeleteFunc(r.Findings, func(p strictyaml.Problem) bool { return p.ID == "redis-vulnerable" })
	return r
}

// TestExamineRedis examines a Redis as users with and without the rights that the service needs.
func TestExamineRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--maxmemory", "100mb")
	line := strings.Fields(redisstore.ACL("shop:rl:"))
	user := func(name string, more ...string) redisstore.Config {
		acl := append(slices.Clone(line), more...)
		acl[2], acl[4] = name, ">swordfish"
		if reply, err := server.Do(acl...); err != nil || reply != "OK" {
			t.Fatal(reply, err)
		}
		return redisstore.Config{URL: "redis://" + name + ":swordfish@" + server.Addr, KeyPrefix: "shop:"}
	}
	const day = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	rules := rulesOf(t, day)
	at := func(url string) redisstore.Config { return redisstore.Config{URL: url, KeyPrefix: "shop:"} }
	cluster, sentinels := at(server.Addr), at("master,127.0.0.1:1")
	cluster.Mode, sentinels.Mode = redisstore.Cluster, redisstore.Sentinel
	for name, c := range map[string]struct {
		cfg     redisstore.Config
		timeout time.Duration
		want    string // the findings
		text    string
	}{
		"the ACL line": {user("ann"), time.Hour, "not-checked",
			"could not be checked: persistence by RDB (CONFIG GET save); AOF is off: NOPERM"},
		"CONFIG GET, too": {user("bob", "+config|get"), time.Hour, "redis-persistence",
			"the user of the service has the rights that it needs: ACL SETUSER <user>"},
		"without EVAL and HLEN": {user("eve", "+config|get", "-eval", "-hlen"), time.Hour, "redis-acl redis-persistence",
			"may not use `eval return(0) 1 KEY` and `hlen KEY`"},
		"without its keys": {user("dan", "+config|get", "resetkeys", "~rl:*"), time.Hour, "redis-acl redis-persistence",
			"`get KEY`, `set KEY x xx`, `del KEY`"},
		"without INFO": {user("joe", "-info"), time.Hour, "redis-acl not-checked", "version, memory, persistence and role"},
		"the user default": {at(server.Addr), time.Hour, "redis-user redis-persistence",
			"it needs only ACL SETUSER <user> on ><password> ~shop:rl:* "},
		"no time": {user("kim", "+config|get"), 1, "redis-slow redis-persistence", "a decision waits at most 1ns"},
		"a wrong password": {at("redis://ann:swordfishes@" + server.Addr), time.Hour, "redis-unreachable",
			"the user needs ACL SETUSER <user>"},
		"no Redis":      {at("redis://ann:swordfish@127.0.0.1:1"), time.Hour, "redis-unreachable", "connection refused"},
		"no URL":        {at("redis://ann:sword fish@\x1b[2J"), time.Hour, "redis-unreachable", "REDIS_URL: error: "},
		"not a cluster": {cluster, time.Hour, "redis-unreachable", "cluster support disabled"},
		"no sentinels":  {sentinels, time.Hour, "redis-unreachable", "REDIS_URL: error: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := examineRedis(t, c.cfg, c.timeout, rules)
			wantFindings(t, r, strings.Fields(c.want)...)
			wantText(t, r, c.text)
			if r.Unread != (c.want == "redis-unreachable") {
				t.Errorf("unread is %t", r.Unread)
			}
		})
	}
	t.Cleanup(func() { // nothing was written
		if reply, err := server.Do("DBSIZE"); err != nil || reply != "0" {
			t.Errorf("Redis has %s keys (%v), want none", reply, err)
		}
	})
}

// TestSettingsOfRedis examines servers with other settings.
func TestSettingsOfRedis(t *testing.T) {
	t.Parallel()
	minute := rulesOf(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	for name, c := range map[string]struct {
		args string
		keys bool
		want string // beside redis-user
		text string
	}{
		"as recommended": {"--maxmemory 9mb --appendonly yes", true, "", "Redis persists by AOF"},
		"RDB":            {"--maxmemory 9mb --save 60_1", true, "", "Redis persists by RDB: save 60 1"},
		"limits alone":   {"--maxmemory 9mb", false, "", "it has API keys: false"},
		"API keys":       {"--maxmemory 9mb", true, "redis-persistence", "it has API keys: true"},
		"no maxmemory":   {"", false, "redis-maxmemory", "maxmemory is 0"},
		"it evicts buckets": {"--maxmemory 9mb --maxmemory-policy volatile-ttl", false, "redis-evicts-buckets",
			"volatile-ttl"},
		"it evicts all":    {"--maxmemory 9mb --maxmemory-policy allkeys-lru", false, "redis-evicts-all", "allkeys-lru"},
		"it is a replica":  {"--maxmemory 9mb --replicaof 127.0.0.1_1", false, "redis-replica", "its role is slave"},
		"it has no memory": {"--maxmemory 1", false, "", "the clock of Redis is ahead of ours by"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "_", " ")
			}
			server := testenv.Redis(t, args...)
			if c.keys {
				if _, err := server.Do("HSET", "rl:keys", "x", "y"); err != nil {
					t.Fatal(err)
				}
			}
			r := examineRedis(t, redisstore.Config{URL: server.Addr}, time.Hour, minute)
			wantFindings(t, r, append(strings.Fields(c.want), "redis-user")...)
			wantText(t, r, c.text)
		})
	}
}

// TestClusterOfRedis finds the API keys in a cluster, whichever master has them.
func TestClusterOfRedis(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	if _, err := cluster.MasterOf("rl:keys").Do("HSET", "rl:keys", "x", "y"); err != nil {
		t.Fatal(err)
	}
	cfg := redisstore.Config{URL: cluster.Addrs(), Mode: redisstore.Cluster}
	r := examineRedis(t, cfg, time.Hour, Rules{})
	wantFindings(t, r, "redis-user", "redis-maxmemory", "redis-persistence")
	wantText(t, r, "REDIS_URL: warning: maxmemory is 0")
}

// TestSentinels examines the master that sentinels name.
func TestSentinels(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	cfg := redisstore.Config{URL: sentinels.Addrs(), Mode: redisstore.Sentinel}
	r := examineRedis(t, cfg, time.Hour, Rules{})
	wantFindings(t, r, "redis-user", "redis-maxmemory")
	wantText(t, r, "its role is master")
}

// listen serves each connection of a new address, until the test ends.
func listen(t *testing.T, serve func(conn net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

// TestClockOfRedis examines a server whose clock is a day ahead, and that has nothing else of Redis.
func TestClockOfRedis(t *testing.T) {
	t.Parallel()
	address := listen(t, func(conn net.Conn) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() { // *N, and then each word after its length
			n, _ := strconv.Atoi(strings.TrimPrefix(lines.Text(), "*"))
			var words []string
			for range n {
				lines.Scan()
				lines.Scan()
				words = append(words, lines.Text())
			}
			reply := "+OK\r\n"
			switch words[0] {
			case "hello":
				reply = "-ERR unknown command\r\n"
			case "time":
				reply = fmt.Sprintf("*2\r\n:%d\r\n:0\r\n", time.Now().Add(24*time.Hour).Unix())
			}
			_, _ = io.WriteString(conn, reply)
		}
	})
	r := examineRedis(t, redisstore.Config{URL: address}, time.Hour, Rules{})
	wantText(t, r, "the clock of Redis is ahead of ours by 2", "[redis-clock]", "`` is no version")
}

// TestForeignRedis examines servers that send what no Redis sends.
func TestForeignRedis(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"errors with control characters": "-ERR \x1b[2J swordfish is not a command\r\n",
		"a text without an end":          "$999999999999\r\n",
		"no reply of Redis":              "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listen(t, func(conn net.Conn) { _, _ = io.WriteString(conn, strings.Repeat(reply, 100)) })
			r := examineRedis(t, redisstore.Config{URL: address}, time.Hour, Rules{})
			if len(r.Findings) == 0 || strings.Contains(r.Findings.Error(), "\x1b") {
				t.Errorf("got %q, want findings without control characters", r.Findings.Error())
			}
		})
	}
}

func TestVersionOfRedis(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"6.2.20": "redis-version", "7.0.15": "redis-vulnerable", "7.2.10": "redis-vulnerable", "7.2.11": "",
		"7.4.5": "redis-vulnerable", "7.4.6": "", "8.0.3": "redis-vulnerable", "8.0.4": "", "8.1.0": "redis-vulnerable",
		"8.2.1": "redis-vulnerable", "8.2.2": "", "8.4.0": "", "9.0.0": "", "x": "not-checked", "": "not-checked",
		"valkey 7.2.11": "redis-version", "valkey 8.0.5": "redis-vulnerable", "valkey 8.0.6": "",
		"valkey 8.1.3": "redis-vulnerable", "valkey 8.1.4": "", "valkey 9.0.0": "",
	} {
		info := map[string]string{"redis_version": version, "role": "master"}
		if v, ok := strings.CutPrefix(version, "valkey "); ok {
			info = map[string]string{"server_name": "valkey", "redis_version": "7.2.4", "valkey_version": v, "role": "master"}
		}
		var r Report
		r.version(info)
		if got := strings.Join(ids(&r), " "); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}

// TestTries has a try for each right of the ACL line, except for those that no user needs.
func TestTries(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{"+hello": true, "+auth": true}
	for _, try := range tries {
		words := strings.Fields(try)
		if words[0] == "script" {
			words[0] += "|" + words[1]
		}
		tried["+"+words[0]] = true
	}
	var rights []string
	for _, word := range strings.Fields(redisstore.ACL("")) {
		if strings.HasPrefix(word, "+") {
			rights = append(rights, word)
		}
	}
	slices.Sort(rights)
	if got := slices.Sorted(maps.Keys(tried)); !slices.Equal(got, rights) {
		t.Errorf("the tries are for %v, the ACL line has %v", got, rights)
	}
}

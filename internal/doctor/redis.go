package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

const (
	// redisPatience bounds the whole examination of a Redis, and commandPatience each command.
	redisPatience, commandPatience = 15 * time.Second, 2 * time.Second
	// calls are how many calls the latency is measured with.
	calls = 50
	// clocksDiffer is less than the shortest window.
	clocksDiffer = 500 * time.Millisecond
)

type examination struct {
	*Report
	redis.UniversalClient
	ctx    context.Context
	prefix string // of all keys of the service
}

// ExamineRedis reads what Redis tells about itself, in a cluster one of the masters. It tries the commands that the
// service needs, and changes no data. setting is the variable with the address, and names a Redis with several.
func ExamineRedis(ctx context.Context, setting string, cfg redisstore.Config, rules Rules) *Report {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	wait := cfg.MostWait()
	cfg.PoolSize, cfg.Timeout, cfg.DialTimeout = 1, commandPatience, commandPatience
	client, err := redisstore.Connect(cfg)
	x := examination{&Report{At: setting}, client, ctx, cfg.KeyPrefix + "rl:"}
	if single, ok := client.(*redis.Client); ok && cfg.Mode == redisstore.Single {
		x.At = "redis://" + single.Options().Addr
	}
	if err == nil {
		defer func() { _ = client.Close() }() // it was only read
		err = client.Ping(ctx).Err()
	}
	if err != nil {
		x.Unread = true
		x.find("redis-unreachable", "cannot ask Redis: "+err.Error(), redisstore.LoginHelp(err, x.prefix))
		return x.Report
	}
	x.rights()
	text, err := client.Info(ctx).Result()
	if err == nil {
		info := redisstore.Info(text)
		x.version(info)
		x.memory(info)
		x.persistence(info["aof_enabled"] == "1", rules)
	} else {
		x.unknown("version, memory, persistence and role", err)
	}
	x.latency(wait)
	return x.Report
}

// fixed are the first versions of each line without CVE-2025-49844. Later lines never had it.
var fixed = map[string][][]int{
	"Redis":  {{7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"Valkey": {{8, 0, 6}, {8, 1, 4}},
}

// version checks the version of Redis or Valkey, and that it accepts writes.
func (r *Report) version(info map[string]string) {
	product, text, least := "Redis", info["redis_version"], []int{7}
	if info["server_name"] == "valkey" {
		product, text, least = "Valkey", info["valkey_version"], []int{8}
	}
	v := parseVersion(text)
	vulnerable := false
	for _, fix := range slices.Backward(fixed[product]) {
		if v != nil && slices.Compare(v[:2], fix[:2]) <= 0 {
			vulnerable = slices.Compare(v, fix) < 0
		}
	}
	switch {
	case v == nil:
		r.unknown("the version of Redis", fmt.Errorf("%s is no version", suggest.Quoted(text)))
	case slices.Compare(v, least) < 0:
		r.find("redis-version", product+" "+text)
	default:
		r.check(vulnerable, "redis-vulnerable", product+" "+text)
	}
	r.check(info["role"] == "slave", "redis-replica", "its role is "+info["role"])
}

// memory checks what Redis does when its memory is full.
func (r *Report) memory(info map[string]string) {
	policy := info["maxmemory_policy"]
	text := "maxmemory-policy is " + policy + "; evicted keys since Redis started: " + info["evicted_keys"]
	id := "redis-evicts-buckets"
	if strings.HasPrefix(policy, "allkeys-") {
		id = "redis-evicts-all"
	}
	r.check(policy != "noeviction", id, text)
	r.check(info["maxmemory"] == "0", "redis-maxmemory", "maxmemory is "+info["maxmemory"])
}

// tries are harmless commands for each right that the service needs: KEY does not exist. HELLO and AUTH need no right.
var tries = []string{
	"evalsha 0000000000000000000000000000000000000000 1 KEY", "eval return(0) 1 KEY", "script load return(0)", "get KEY",
	"set KEY x xx", "del KEY", "time", "ping", "info server", "zadd KEY xx 0 x", "zcard KEY", "zremrangebyscore KEY 0 0",
	"pexpire KEY 1", "hget KEY x", "hscan KEY 0", "hlen KEY", "hstrlen KEY x",
	"hset KEY x x y", "hdel KEY x", "hgetall KEY", // an odd number of words sets nothing
}

// rights tries each command that the service needs, as its user. Only one reply means that it may not.
func (x examination) rights() {
	key := x.prefix + "doctor" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var missing []string
	for _, try := range tries {
		var words []any
		for word := range strings.FieldsSeq(try) {
			words = append(words, strings.Replace(word, "KEY", key, 1))
		}
		err := x.Do(x.ctx, words...).Err()
		switch {
		case err != nil && !errors.As(err, new(redis.Error)):
			x.unknown("the right to use "+try, err)
			return
		case redis.HasErrorPrefix(err, "NOPERM"):
			missing = append(missing, try)
		}
	}
	if missing != nil {
		x.find("redis-acl", "the user of the service may not use "+suggest.List(missing, " and "),
			"KEY stands for a key that begins with "+x.prefix, "the user needs "+redisstore.ACL(x.prefix))
		return
	}
	if x.Do(x.ctx, "acl", "whoami").Val() == "default" { // most other users may not ask
		x.find("redis-user", "the service logs in as the user default", "it needs only "+redisstore.ACL(x.prefix))
		return
	}
	x.fact("the user of the service has the rights that it needs: " + redisstore.ACL(x.prefix))
}

// persistence checks what a restart of Redis loses.
func (x examination) persistence(aof bool, rules Rules) {
	const day = 24 * time.Hour
	keys := x.HLen(x.ctx, x.prefix+"keys").Val()
	long := rules.Limits != nil && slices.ContainsFunc(rules.Limits.All(), func(r *ratelimit.Rule) bool {
		return slices.ContainsFunc(r.Limits, func(l ratelimit.RuleLimit) bool { return l.Window >= day.Microseconds() })
	})
	save, err := x.ConfigGet(x.ctx, "save").Result()
	switch {
	case aof:
		x.fact("Redis persists by AOF")
	case err != nil:
		x.unknown("persistence by RDB (CONFIG GET save); AOF is off", err)
	case save["save"] != "":
		x.fact("Redis persists by RDB: save " + save["save"])
	default:
		x.check(long || keys > 0, "redis-persistence", fmt.Sprintf("Redis does not persist; it has API keys: %t; "+
			"the rules have a limit of a day or longer: %t", keys > 0, long))
	}
}

// latency compares the time of calls with REDIS_TIMEOUT, and the clock of Redis with that of this machine.
func (x examination) latency(wait time.Duration) {
	var took []time.Duration
	var ahead time.Duration
	for range calls {
		begin := time.Now()
		theirs, err := x.Time(x.ctx).Result()
		if err != nil {
			x.unknown("the latency and the clock of Redis", err)
			return
		}
		took = append(took, time.Since(begin).Round(time.Microsecond))
		ahead = theirs.Sub(begin.Add(took[len(took)-1] / 2)).Round(time.Millisecond)
	}
	slices.Sort(took)
	most := took[calls-1]
	x.check(most > wait, "redis-slow", fmt.Sprintf("%d calls took %s at the median and %s at most; "+
		"a decision waits at most %s", calls, took[calls/2], most, wait))
	x.check(ahead.Abs() > most+clocksDiffer, "redis-clock", "the clock of Redis is ahead of ours by "+ahead.String())
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/test/testenv"
)

// springRoute is a route of an old gateway, with a limit for each value of x-user.
const springRoute = `spring.cloud.gateway.routes:
  - id: orders
    predicates: [Path=/orders/**]
    filters:
      - name: RequestRateLimiter
        args:
          key-resolver: "#{@user}"
          redis-rate-limiter: {replenishRate: 5000, burstCapacity: 200000, requestedTokens: 100000}
`

// secondsScript is a token bucket that gets its tokens back at each full second of Redis's clock, as RedisRateLimiter
// documents it. It returns whether the request passes, and the tokens that are left.
var secondsScript = redis.NewScript(`
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local second = tonumber(redis.call('TIME')[1])
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'second')
local tokens = burst
if stored[1] then
	tokens = math.min(burst, tonumber(stored[1]) + rate * math.max(0, second - tonumber(stored[2])))
end
local passes = 0
if tokens >= cost then
	passes, tokens = 1, tokens - cost
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'second', second)
redis.call('EXPIRE', KEYS[1], 60)
return {passes, tokens}`)

// oldGateway is an HTTP server with the limit of springRoute, but another burst capacity. Its buckets are in Redis.
func oldGateway(t *testing.T, burst int) (url string) {
	t.Helper()
	const rate, cost = 5_000, 100_000
	client := redis.NewClient(&redis.Options{Addr: testenv.Redis(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	return "http://" + testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		key := "request_rate_limiter.{orders." + r.Header.Get("X-User") + "}"
		reply, err := secondsScript.Run(r.Context(), client, []string{key}, rate, burst, cost).Int64Slice()
		if err != nil {
			t.Error(err)
			return
		}
		for name, value := range map[string]int{
			"Remaining": int(reply[1]), "Replenish-Rate": rate, "Burst-Capacity": burst, "Requested-Tokens": cost,
		} {
			w.Header().Set("X-RateLimit-"+name, strconv.Itoa(value))
		}
		if reply[0] == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// newGateway converts springRoute and returns the address of an Envoy that asks a service with the result.
func newGateway(t *testing.T) (url string) {
	t.Helper()
	cmd := tools(t, "migrate", "spring", "--key", "user=header:x-user", "-o", "json", "-")
	cmd.Stdin = strings.NewReader(springRoute)
	out, err := cmd.Output()
	var converted struct {
		Files []struct {
			Content string `json:"content"`
		} `json:"files"`
		Settings []string `json:"settings"`
		Routes   string   `json:"envoy_routes"`
	}
	if err == nil {
		err = json.Unmarshal(out, &converted)
	}
	if err != nil || len(converted.Files) != 1 {
		t.Fatalf("extauthz-tools migrate spring: %v\n%s", err, out)
	}
	root, _ := rulesDirectory(t, converted.Files[0].Content)
	service := startService(t, append(converted.Settings, "RUNTIME_ROOT="+root)...)
	const indent = "\n                        "
	envoy := startEnvoy(t, service.grpcPort, instead("\n                      routes:\n",
		"\n                      routes:"+indent+strings.ReplaceAll(strings.TrimSpace(converted.Routes), "\n", indent)+"\n"))
	return "http://" + envoy.addr
}

// TestMigrationSpringCompares compares a gateway whose buckets fill once a second with Envoy and the converted rules.
func TestMigrationSpringCompares(t *testing.T) {
	t.Parallel()
	const page = "docs/migration/from-spring-cloud-gateway.md"
	older, larger, newer := oldGateway(t, 200_000), oldGateway(t, 300_000), newGateway(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	source := file("application.yml", springRoute)
	line := func(user string) string {
		return fmt.Sprintf(`{"path":"/orders/1","headers":{"x-user":%q}}`+"\n", user)
	}
	ann, bob := line("ann"), line("bob")
	for _, c := range []struct {
		args, old string
		code      int
		want      []string
	}{
		{"", older, 0, []string{
			"Compared 4 requests: ",
			"Listed in " + page + ": tokens come back at each full second, ", ", GET /orders/migrate-", ", remaining: old ",
		}},
		{"--requests " + file("sample", ann+bob+ann+bob), older, 0, []string{"Compared 4 requests: ", "full second, "}},
		{"--requests " + file("again", ann), older, 1, []string{"Compared 1 request: ", "Not listed in " + page + ": "}},
		{"", larger, 1, []string{
			"Not listed in " + page + ": ", "burst capacity  300000  200000\n", "remaining       200000  100000\n",
		}},
		{"-o json", larger, 1, []string{`"subject": "GET /orders/migrate-`, `"what": "burst capacity",`}},
		{"--requests " + file("open", `{"path":"/orders/1"}`), older, 1, []string{
			"  1        GET /orders/1  status  403  200\n"}},
		{"-H x-user:eve --requests " + file("bare", `{"path":"/orders/1"}`), older, 0, []string{
			"Compared 1 request: 1 with the same answer\n"}},
	} {
		args := append([]string{"compare", "spring", "--key", "user=header:x-user", "--old", c.old, "--new", newer},
			strings.Fields(c.args)...)
		out, err := tools(t, append(args, source)...).CombinedOutput()
		code := 0
		if err != nil {
			code = exitCode(t, err)
		}
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: want %q in\n%s", args, want, out)
			}
		}
	}
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

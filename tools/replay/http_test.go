package replay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/tools/migrate"
)

// springRoutes has a route by header, one by query, one by address, one by owner and one without a limit.
const springRoutes = `spring.cloud.gateway.routes:
  - {id: open, predicates: [Path=/open]}
  - id: slow
    predicates: ["Path=/slow/{id}", Method=POST]
    filters:
      - name: RequestRateLimiter
        args:
          key-resolver: "#{@user}"
          redis-rate-limiter: {replenishRate: 2, burstCapacity: 60, requestedTokens: 20}
  - id: search
    predicates: [Path=/search]
    filters:
      - name: RequestRateLimiter
        args: {key-resolver: "#{@word}", redis-rate-limiter: {replenishRate: 1, burstCapacity: 2}}
  - id: fast
    predicates: [Path=/fast]
    filters:
      - name: RequestRateLimiter
        args:
          key-resolver: "#{@address}"
          status-code: FORBIDDEN
          redis-rate-limiter: {replenishRate: 9, burstCapacity: 4}
  - id: none
    predicates: [Path=/none]
    filters:
      - name: RequestRateLimiter
        args: {key-resolver: "#{@user}", redis-rate-limiter: {replenishRate: 9, burstCapacity: 0}}
  - id: wide
    predicates: [Path=/**]
    filters:
      - name: RequestRateLimiter
        args: {key-resolver: "#{@key}", redis-rate-limiter: {replenishRate: 1, burstCapacity: 500}}
`

// gatewayOf converts a configuration.
func gatewayOf(t *testing.T, text string) migrate.SpringGateway {
	t.Helper()
	o := migrate.SpringOptions{Domain: "gateway", Keys: map[string]migrate.SpringKey{}}
	for bean, kind := range map[string]string{"user": "header:X-User", "word": "query:q", "address": "address"} {
		key, err := migrate.ParseSpringKey(kind)
		if err != nil {
			t.Fatal(err)
		}
		o.Keys[bean] = key
	}
	c := migrate.Spring(strictyaml.File{Name: "application.yml", Content: []byte(text)}, o)
	if c.Problems.HasErrors() {
		t.Fatal(c.Problems)
	}
	return c.Gateway
}

func TestGenerateHTTP(t *testing.T) {
	var got []string
	for _, r := range GenerateHTTP(gatewayOf(t, springRoutes), map[string]string{"x-api-key": "k"}, "w") {
		got = append(got, fmt.Sprint(r.Method, " ", r.Path, " ", r.Headers))
	}
	slow, wide := "POST /slow/w map[X-User:w x-api-key:k]", "GET /w map[x-api-key:k]"
	search, none := "GET /search?q=w map[x-api-key:k]", "GET /none map[X-User:w x-api-key:k]"
	fast := "GET /fast map[x-api-key:k]"
	want := []string{
		"GET /open map[x-api-key:k]", slow, slow, slow, slow, slow, search, search, search, search,
		fast, fast, fast, fast, fast, fast, none, none, wide, wide, wide, wide, wide, wide,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadHTTP(t *testing.T) {
	const good = `{"method":"POST","path":"/a?b=c","headers":{"x-user":"ann","Host":"shop"}}`
	for _, c := range []struct{ name, text, want string }{
		{"two", good + "\n\n" + `{"path":"/"}` + "\r\n", ""},
		{"empty", "\n", "f has no requests: want one HTTP request in JSON a line"},
		{"no JSON", good + "\nx\n", "f:2: no HTTP request in JSON: "},
		{"unknown field", `{"paht":"/"}`, "f:1: no HTTP request in JSON: json: unknown field \"paht\""},
		{"two in a line", good + good, "f:1: more than one JSON value"},
		{"no path", `{}`, "f:1: `path` cannot be ``: want one that begins with /"},
		{"a URL", `{"path":"http://shop/"}`, "f:1: `path` cannot be `http://shop/`: want one that begins with /"},
		{"a path with a mistake", `{"path":"/%zz"}`, "f:1: `path` cannot be `/%zz`: want a valid path"},
		{"no method", `{"path":"/","method":"GET /"}`, "f:1: `method` cannot be `GET /`"},
		{"a tunnel", `{"path":"/","method":"CONNECT"}`, "f:1: `method` cannot be `CONNECT`"},
		{"no header name", `{"path":"/","headers":{"a b":""}}`, "f:1: the name of a header is not valid"},
		{"no header value", `{"path":"/","headers":{"a":"hunter2\n"}}`, "f:1: the value of `a` cannot be sent (it is not"},
		{"a header of the connection", `{"path":"/","headers":{"Content-Length":"1"}}`, "f:1: `Content-Length` belongs to a"},
		{"a header twice", `{"path":"/","headers":{"a":"1","A":"2"}}`, "f:1: the header `a` is there twice"},
	} {
		requests, err := ReadHTTP("f", strings.NewReader(c.text))
		if c.want == "" && (err != nil || len(requests) != 2 || requests[1].Method != "GET") {
			t.Errorf("%s: %d requests, %v", c.name, len(requests), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || err != nil &&
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for _, c := range []struct {
		address string
		remote  bool
		want    string
	}{
		{"http://127.0.0.1:8080", false, ""},
		{"https://localhost/", false, ""},
		{"http://[::1]:8080", false, ""},
		{"https://gateway.example", true, ""},
		{"http://gateway:8080", false, "is not on this machine"},
		{"http://localhost.example.org", false, "is not on this machine"},
		{"127.0.0.1:8080", false, "want http://host:port"},
		{"localhost:8080", false, "want http://host:port"},
		{"ftp://127.0.0.1", false, "want http://host:port"},
		{"http://", false, "want http://host:port"},
		{"http://127.0.0.1:8080/orders", false, "want http://host:port"},
		{"http://127.0.0.1:8080?a", false, "want http://host:port"},
		{"http://127.0.0.1:8080#a", false, "want http://host:port"},
		{"http://127.0.0.1:\x7f", false, "want http://host:port"},
		{"http://ann:hunter2@127.0.0.1:8080", false, "(the value is not shown)"},
	} {
		err := CheckURL(c.address, c.remote)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %q", c.address, err, c.want)
		}
	}
}

// TestHTTPJudge compares answers. A step is a request, the time at which it is sent, in seconds, the two answers, and
// the differences with their rows. An answer is its status and the rate limit headers, or the remaining tokens alone.
func TestHTTPJudge(t *testing.T) {
	type step struct {
		request      string
		at           float64
		older, newer string
		want         string
	}
	const (
		seconds = " (tokens come back at each full second)"
		slow    = "POST /slow/1 x-user=ann"
	)
	for _, c := range []struct {
		name, without string // a property of the gateway
		steps         []step
	}{
		{"equal", "", []step{{slow, 0, "200 40", "200 40", ""}, {"GET /open", 1, "200", "200", ""},
			{"GET /open", 1, "404", "404", ""}}},
		{"tokens come back in the course of a second", "", []step{
			{slow, 0, "200 40", "200 40", ""},
			{slow, 0.6, "200 20", "200 21", "remaining: 20, 21" + seconds},
			{slow, 1.2, "200 2", "200 2", ""},
			{slow, 10.1, "429 18", "200 0", "status: 429, 200" + seconds + "\nremaining: 18, 0" + seconds},
			{slow, 10.3, "200 0", "429 0", "status: 200, 429" + seconds},
		}},
		{"more tokens than can have come back", "", []step{
			{slow, 0, "200 40", "200 40", ""},
			{slow, 0.5, "200 20", "200 24", "remaining: 20, 24 ()"},
			{slow, 1.5, "200 2", "200 6", "remaining: 2, 6 ()"},
		}},
		{"a bucket that was not full", "", []step{{slow, 0, "200 20", "200 40", "remaining: 20, 40 ()"}}},
		{"another key than the one that was given", "", []step{
			{slow, 0, "200 40", "200 40", ""},
			{"POST /slow/1 x-user=bob", 0, "200 20", "200 40", "remaining: 20, 40 ()"},
		}},
		{"a denial of a full bucket", "", []step{{slow, 0, "200 40", "429 60", "status: 200, 429 ()\nremaining: 40, 60 ()"}}},
		{"numbers in another form", "", []step{
			{slow, 0, "200 40 2.0 60 20", "200 40 2 60 20", ""},
			{slow, 0, "200 20 3 60 20", "200 20 2 50 20", "replenish rate: 3, 2 ()\nburst capacity: 60, 50 ()"},
		}},
		{"Redis is unreachable", "", []step{
			{slow, 0, "200 -1", "200 40", "remaining: -1, 40 (Redis is unreachable: everything passes)"},
		}},
		{"an unknown key", "", []step{
			{slow, 0, "403", "403", ""},
			{slow, 0, "403", "401", "status: 403, 401 (`empty-key-status-code`)"},
			{slow, 0, "200 40", "403", "status: 200, 403 ()\nheaders: \"remaining, replenish rate, burst capacity, requested " +
				"tokens\", none ()"},
			{slow, 0, "200", "403", "status: 200, 403 ()"},
		}},
		{"a request without a key passes", "spring.cloud.gateway.filter.request-rate-limiter.deny-empty-key: false", []step{
			{slow, 0, "200", "403", "status: 200, 403 (`deny-empty-key: false`)"},
			{slow, 0, "200", "200 40", "headers: none, \"remaining, replenish rate, burst capacity, requested tokens\" ()"},
		}},
		{"no headers", "spring.cloud.gateway.redis-rate-limiter.include-headers: false", []step{
			{slow, 0, "200", "200 40", "headers: none, \"remaining, replenish rate, burst capacity, requested tokens\" " +
				"(`include-headers`)"},
			{slow, 0, "200", "200", ""},
			{slow, 0, "200", "200", ""},
			{slow, 9.5, "200", "429", "status: 200, 429" + seconds},
			{slow, 9.6, "429", "429", ""},
			{slow, 9.7, "200", "429", "status: 200, 429 ()"}, // no second brings that many
		}},
		{"headers of other names", "spring.cloud.gateway.redis-rate-limiter.remaining-header: x-left", []step{
			{slow, 0, "200 - 2 60 20", "200 40 2 60 20", "remaining: none, 40 (names of headers (`remaining-header`, ...))"},
		}},
		{"a limit that Spring never applies", "", []step{
			{"GET /fast", 0, "200 3 9 4 1", "200 3 9 4 1", ""},
			{"GET /fast", 0, "200 3 9 4 1", "200 2 9 4 1",
				"remaining: 3, 2 (`replenishRate` of more than twice `burstCapacity`)"},
			{"GET /fast", 0, "200 3 9 4 1", "429 0 9 4 1",
				"status: 200, 429 (`replenishRate` of more than twice `burstCapacity`)\n" +
					"remaining: 3, 0 (`replenishRate` of more than twice `burstCapacity`)"},
			{"GET /fast", 0, "403 0 9 4 1", "429 0 9 4 1", "status: 403, 429 (`status-code`)"},
			{"GET /fast", 0, "502", "200 3 9 4 1", "status: 502, 200 ()\nheaders: none, \"remaining, replenish rate, burst " +
				"capacity, requested tokens\" ()"},
		}},
		{"no capacity", "", []step{{"GET /none x-user=ann", 0, "429 0 9 0 1", "429 0 0 0 1",
			"replenish rate: 9, 0 (`burstCapacity: 0`)"}}},
		{"a terminal", "", []step{{slow, 0, "200 \x1b[2J", "200 40", "remaining: \"\\x1b[2J\", 40 ()"}}},
		{"no limit", "", []step{{"GET /open", 0, "200", "429", "status: 200, 429 ()"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newHTTPJudge(gatewayOf(t, springRoutes+c.without+"\n"))
			for i, s := range c.steps {
				var got []string
				for _, d := range j.compare(i+1, parseHTTP(s.request), parseHTTPAnswer(t, s.older, s.at),
					parseHTTPAnswer(t, s.newer, s.at)) {
					got = append(got, fmt.Sprintf("%s: %s, %s (%s)", d.What, d.Old, d.New, d.Row))
				}
				if diff := cmp.Diff(s.want, strings.Join(got, "\n")); diff != "" {
					t.Errorf("request %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

func parseHTTP(text string) *HTTPRequest {
	words := strings.Fields(text)
	r := &HTTPRequest{Method: words[0], Path: words[1], Headers: map[string]string{}}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		r.Headers[name] = value
	}
	return r
}

// parseHTTPAnswer reads an answer that takes a millisecond.
func parseHTTPAnswer(t *testing.T, text string, at float64) httpAnswer {
	t.Helper()
	words := strings.Split(text, " ")
	status, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Unix(1000, 0).Add(time.Duration(at * float64(time.Second)))
	a := httpAnswer{status: status, sent: sent, received: sent.Add(time.Millisecond)}
	if len(words) == 2 {
		words = append(words, "2", "60", "20")
	}
	for i, word := range words[1:] {
		if word != "-" {
			a.limit[i] = word
		}
	}
	return a
}

// TestCompareHTTP sends requests as they were recorded, each once, and follows no redirect.
func TestCompareHTTP(t *testing.T) {
	var got [2][]string
	var servers [2]*httptest.Server
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got[i] = append(got[i], fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", r.Header.Get("X-User")))
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}))
		defer servers[i].Close()
	}
	requests, err := ReadHTTP("f", strings.NewReader(`{"path":"//a/%2f?b=%20","headers":{"host":"shop","x-user":"ann"}}`+
		"\n"+`{"method":"PATCH","path":"/","headers":{"host":"shop"}}`))
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	report, err := CompareHTTP(t.Context(), Config{Old: servers[0].URL, New: servers[1].URL + "/",
		Progress: func(n int) { sent = n }}, requests)
	if err != nil || report.Sent != 2 || report.Same != 2 || sent != 2 {
		t.Errorf("%+v, progress %d: %v", report, sent, err)
	}
	want := []string{"GET //a/%2f?b=%20 shop ann", "PATCH / shop "}
	if diff := cmp.Diff([2][]string{want, want}, got); diff != "" {
		t.Error(diff)
	}
	servers[1].Close()
	report, err = CompareHTTP(t.Context(), Config{Old: servers[0].URL, New: servers[1].URL}, requests)
	if err == nil || report.Sent != 0 || !strings.HasPrefix(err.Error(), servers[1].URL+" does not answer: dial") {
		t.Errorf("a gateway that has ended: %+v, %v", report, err)
	}
}

package jwt_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/test/testenv"
)

// introspection is a server that answers about tokens. It wants the secret in the body at /post, else in the header.
type introspection struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // by token; "" is not active
	asked   []string
	hold    chan struct{} // if it is set, answers wait until it is closed
}

func newIntrospection(t *testing.T) *introspection {
	t.Helper()
	i := &introspection{answers: map[string]string{}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.PostFormValue("token")
		id, secret, _ := r.BasicAuth()
		got := [5]any{r.Method, id, secret, r.PostForm["client_id"], r.PostForm["client_secret"]}
		want := [5]any{http.MethodPost, "ext+authz", "s%3Acret%2F", []string(nil), []string(nil)} // RFC 6749, 2.3.1
		if r.URL.Path == "/post" {
			want = [5]any{http.MethodPost, "", "", []string{"ext authz"}, []string{"s:cret/"}}
		}
		if !reflect.DeepEqual(got, want) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		i.mu.Lock()
		i.asked = append(i.asked, token)
		answer, hold := i.answers[token], i.hold
		i.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		if answer == "" {
			answer = `{"active":false}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(i.Close)
	return i
}

// count returns how many calls there were.
func (i *introspection) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

// says makes the answer about a token that it is active, with these members.
func (i *introspection) says(token string, members claims) {
	i.mu.Lock()
	defer i.mu.Unlock()
	members["active"] = true
	i.answers[token] = string(must(json.Marshal(members)))
}

func (i *introspection) settings(t *testing.T) *jwt.Opaque {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s:cret/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &jwt.Opaque{IntrospectionURL: new(i.URL), ClientID: new("ext authz"), ClientSecretFile: new(file)}
}

func openIntrospector(t *testing.T, cfg jwt.Config) *jwt.Introspector {
	t.Helper()
	i := jwt.NewIntrospector(cfg)
	t.Cleanup(i.Close)
	return i
}

// TestIntrospection judges answers of an issuer, as RFC 7662 has them, by the settings.
func TestIntrospection(t *testing.T) {
	c, server := &clock{}, newIntrospection(t)
	i, post := openIntrospector(t, jwt.Config{Now: c.now}), server.URL+"/post"
	full := claims{
		"client_id": "l238j323ds-23ij4", "username": "jdoe", "scope": "read write dolphin", "sub": "ann",
		"aud": []string{"https://protected.example.net/resource", audience}, "iss": "https://server.example.com/",
		"exp": c.at(time.Hour), "iat": c.at(0), "extension_field": "twenty-seven",
	}
	for n, one := range []struct {
		name   string
		change func(*jwt.Opaque)
		differ claims
		want   string
	}{
		{"the example of RFC 7662", nil, nil, "owner ann"},
		{"by post", func(o *jwt.Opaque) { o.ClientAuth, o.IntrospectionURL = new("post"), &post }, nil, "owner ann"},
		{"by basic", func(o *jwt.Opaque) { o.ClientAuth = new("basic") }, nil, "owner ann"},
		{"by post, where it is not accepted", func(o *jwt.Opaque) { o.ClientAuth = new("post") }, nil,
			"unavailable: no_answer"},
		{"by basic, where it is not accepted", func(o *jwt.Opaque) { o.IntrospectionURL = &post }, nil,
			"unavailable: no_answer"},
		{"no file of the secret", func(o *jwt.Opaque) { o.ClientSecretFile = new("absent") }, nil, "unavailable: no_answer"},
		{"a wrong client", func(o *jwt.Opaque) { o.ClientID = new("x") }, nil, "unavailable: no_answer"},
		{"the issuer", func(o *jwt.Opaque) { o.Issuer = new("https://server.example.com/") }, nil, "owner ann"},
		{"another issuer", func(o *jwt.Opaque) { o.Issuer = new("https://server.example.com") }, nil, "invalid: issuer"},
		{"the audience", func(o *jwt.Opaque) { o.Audiences = []string{audience} }, nil, "owner ann"},
		{"another audience", func(o *jwt.Opaque) { o.Audiences = []string{"x"} }, nil, "invalid: audience"},
		{"no audience", func(o *jwt.Opaque) { o.Audiences = []string{"x"} }, claims{"aud": nil}, "invalid: audience"},
		{"no end", nil, claims{"exp": nil}, "owner ann"},
		{"expired", nil, claims{"exp": c.at(0)}, "expired: expired"},
		{"not yet", nil, claims{"nbf": c.at(2 * time.Minute)}, "not yet: not_yet"},
		{"a clock that is slow", nil, claims{"iat": c.at(time.Second)}, "owner ann"},
		{"an end that is a text", nil, claims{"exp": "soon"}, "invalid: times"},
		{"no owner", nil, claims{"sub": nil}, "invalid: subject"},
		{"another owner", nil, claims{"sub": "bob"}, "owner bob"},
		{"not a boolean", nil, claims{"active": "true"}, "unavailable: no_answer"},
		{"not JSON", nil, claims{"raw": "<html>"}, "unavailable: no_answer"},
		{"active twice", nil, claims{"raw": `{"active":true,"sub":"ann","active":true}`}, "unavailable: no_answer"},
		{"too long", nil, claims{"raw": `{"active":true,"sub":"ann"` + strings.Repeat(" ", 64<<10) + "}"},
			"unavailable: no_answer"},
		{"nested", nil, claims{"raw": `{"active":true,"sub":"ann","a":` + strings.Repeat("[", 20_000) +
			strings.Repeat("]", 20_000) + "}"}, "unavailable: no_answer"},
		{"an access token, by its type", nil, claims{"typ": "Bearer", "token_use": "access_token"}, "owner ann"},
		{"a refresh token of Keycloak", nil, claims{"typ": "Refresh"}, "invalid: type"},
		{"an offline token of Keycloak", nil, claims{"typ": "Offline"}, "invalid: type"},
		{"a refresh token of Hydra", nil, claims{"token_use": "refresh_token"}, "invalid: type"},
		{"inactive", nil, claims{"raw": `{"active":false,"sub":"ann"}`}, "invalid: inactive"},
	} {
		settings, token, answer := server.settings(t), fmt.Sprintf("t&=+ %d", n), claims{}
		if one.change != nil {
			one.change(settings)
		}
		for _, members := range []claims{full, {"active": true}, one.differ} {
			for name, value := range members {
				if answer[name] = value; value == nil {
					delete(answer, name)
				}
			}
		}
		text, isRaw := one.differ["raw"].(string)
		if !isRaw {
			text = string(must(json.Marshal(answer)))
		}
		server.mu.Lock()
		server.answers[token] = text
		server.mu.Unlock()
		if got := outcome(i.Identify(t.Context(), settings, token)); got != one.want {
			t.Errorf("%s: got %q, want %q", one.name, got, one.want)
		}
		id, known := i.Known(settings, token)
		if known != strings.HasPrefix(one.want, "owner") {
			t.Errorf("%s: it is known: %t", one.name, known)
		}
		if one.name == "the example of RFC 7662" {
			if diff := cmp.Diff([]any{"opaque_token", []string{"read", "write", "dolphin"}, "twenty-seven"},
				[]any{id.Method, id.Scopes, id.Claims["extension_field"]}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		}
	}
	long := strings.Repeat("x", 8<<10+1)
	if got := outcome(i.Identify(t.Context(), server.settings(t), long)); got != "invalid: oversized" {
		t.Errorf("a long token: got %q", got)
	}
}

// TestIntrospectionCache: an answer is used until `cache` or exp ends, and for 10 s if the token is not active.
func TestIntrospectionCache(t *testing.T) {
	c, server := &clock{}, newIntrospection(t)
	i := openIntrospector(t, jwt.Config{Now: c.now})
	minute, short, none := server.settings(t), server.settings(t), server.settings(t)
	none.Cache = new(time.Duration(0))
	server.says("long", claims{"sub": "ann"})
	server.says("short", claims{"sub": "ann", "exp": c.at(20 * time.Second)})
	server.says("uncached", claims{"sub": "ann"})
	at := time.Duration(0)
	for _, step := range []struct {
		at       time.Duration
		settings *jwt.Opaque
		token    string
		want     string
		calls    int
	}{
		{0, minute, "long", "owner ann", 1}, {0, short, "short", "owner ann", 2},
		{0, minute, "wrong", "invalid: inactive", 3},
		{0, none, "uncached", "owner ann", 4}, {0, none, "uncached", "owner ann", 5},
		{10*time.Second - 1, minute, "wrong", "invalid: inactive", 5},
		{10 * time.Second, minute, "wrong", "invalid: inactive", 6},
		{20*time.Second - 1, short, "short", "owner ann", 6}, {20 * time.Second, short, "short", "expired: expired", 7},
		{time.Minute - 1, minute, "long", "owner ann", 7}, {time.Minute, minute, "long", "owner ann", 8},
	} {
		c.advance(step.at - at)
		at = step.at
		got := outcome(i.Identify(t.Context(), step.settings, step.token))
		if got != step.want || server.count() != step.calls {
			t.Errorf("%v, %s: got %q and %d calls, want %q and %d", at, step.token, got, server.count(), step.want, step.calls)
		}
	}
	for n := range 1 << 17 { // tokens that are not active do not displace active ones
		i.FillInactive(fmt.Sprint(n))
	}
	if _, known := i.Known(minute, "long"); !known {
		t.Error("an active token was displaced by others")
	}
}

// TestIntrospectionInParallel: one call runs for a token, 64 run at once, and what is more is not decided. No request
// waits longer than its caller. A call goes on without its caller, so that the next request finds its answer.
func TestIntrospectionInParallel(t *testing.T) {
	server := newIntrospection(t)
	server.hold = make(chan struct{})
	settings, i := server.settings(t), openIntrospector(t, jwt.Config{Now: new(clock).now})
	server.says("same", claims{"sub": "ann"})
	var running sync.WaitGroup
	same := func(n int) {
		for range n {
			running.Go(func() {
				if got := outcome(i.Identify(t.Context(), settings, "same")); got != "owner ann" {
					t.Errorf("the same token: got %q", got)
				}
			})
		}
	}
	await := func(calls int) {
		testenv.Eventually(t, func() error {
			if n := server.count(); n != calls {
				return fmt.Errorf("%d calls, want %d", n, calls)
			}
			return nil
		}, "the calls")
	}
	same(10)
	await(1)
	for n := range 63 {
		running.Go(func() {
			if got := outcome(i.Identify(t.Context(), settings, fmt.Sprint(n))); got != "invalid: inactive" {
				t.Errorf("token %d: got %q", n, got)
			}
		})
	}
	await(64)
	if got := outcome(i.Identify(t.Context(), settings, "one more")); got != "unavailable: too_many_calls" {
		t.Errorf("the 65th token: got %q", got)
	}
	same(10)
	if got := outcome(i.Identify(briefly(t, 50*time.Millisecond), settings, "same")); got != "unavailable: no_answer" {
		t.Errorf("a caller that does not wait: got %q", got)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if got := outcome(i.Identify(done, settings, "for an open path")); !strings.HasPrefix(got, "unavailable") {
		t.Errorf("a caller that has gone: got %q", got)
	}
	close(server.hold)
	running.Wait()
	if got := outcome(i.Identify(t.Context(), settings, "same")); got != "owner ann" || server.count() != 64 {
		t.Errorf("afterwards: got %q and %d calls, want 64", got, server.count())
	}
	want := map[jwt.Answers]uint64{{server.URL, "active"}: 1, {server.URL, "inactive"}: 63, {server.URL, "refused"}: 1}
	if diff := cmp.Diff(want, i.Stats()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestIntrospectionFails: a request is not decided if its issuer does not answer, is slow, or answers otherwise. The
// error names the cause, and neither the token nor the secret. The next request asks again.
func TestIntrospectionFails(t *testing.T) {
	evil := newIntrospection(t)
	for name, failure := range bad(evil.URL) {
		if strings.Contains(name, "keys") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newIntrospection(t)
			settings := server.settings(t)
			broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm() // a server sees that its client has gone only after it has read the body
				failure(w, r)
			}))
			t.Cleanup(broken.Close)
			errs := make(chan error, 2)
			i := openIntrospector(t, jwt.Config{
				Now: new(clock).now, Timeout: fetchTimeout, OnFailure: func(_ string, err error) { errs <- err },
			})
			settings.IntrospectionURL = new(broken.URL)
			for range 2 {
				if got := outcome(i.Identify(t.Context(), settings, "a-token")); got != "unavailable: no_answer" {
					t.Errorf("got %q", got)
				}
				err := <-errs
				text := fmt.Sprint(err)
				if err == nil || strings.Contains(text, "a-token") || strings.Contains(text, "cret") {
					t.Errorf("the error is %q", text)
				}
			}
			if got := i.Stats()[jwt.Answers{URL: broken.URL, Kind: "failed"}]; got != 2 {
				t.Errorf("%d failures are counted, want 2", got)
			}
		})
	}
	t.Cleanup(func() {
		if n := evil.count(); n != 0 {
			t.Errorf("a redirect was followed %d times, with the secret", n)
		}
	})
}

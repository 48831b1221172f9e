package jwt_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// pipes are connections within the process, so that a real server and a real client can run in a synctest bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// bubble runs a test with an issuer in a synctest bubble. The verifier's configuration reaches it under any host name.
func bubble(t *testing.T, answer http.HandlerFunc, test func(t *testing.T, i *issuer, cfg jwt.Config)) {
	synctest.Test(t, func(t *testing.T) {
		connections, i := make(pipes), &issuer{answer: answer}
		server := &http.Server{Handler: http.HandlerFunc(i.handle)}
		go func() {
			if err := server.Serve(connections); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}()
		test(t, i, jwt.Config{Transport: &http.Transport{DialContext: connections.dial, DisableKeepAlives: true}})
		close(connections)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pass lets time pass in a bubble, and waits until all that is due by then has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// keysURL is the URL of the keys in a bubble.
const keysURL = "http://localhost/keys"

// lasting are the times of a token that is valid in every bubble, where the year is 2000.
func lasting() claims {
	return claims{"iat": time.Now().Unix(), "exp": time.Now().Add(1000 * time.Hour).Unix()}
}

// TestSchedule records when keys are fetched without any request.
func TestSchedule(t *testing.T) {
	body := document(es256("1"))
	header := func(lines ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, line := range lines {
				name, value, _ := strings.Cut(line, ": ")
				w.Header().Set(name, value)
			}
			_, _ = w.Write(body)
		}
	}
	minutes := func(n ...time.Duration) (d []time.Duration) {
		for _, m := range n {
			d = append(d, m*time.Minute)
		}
		return d
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		want   []time.Duration // the longest times between two fetches; the shortest is nine tenths
	}{
		{"no max-age", header(), minutes(10, 10, 10)},
		{"max-age", header("Cache-Control: public, max-age=300"), minutes(5, 5, 5)},
		{"max-age in quotes", header(`Cache-Control: Max-Age="300"`), minutes(5, 5, 5)},
		{"a small max-age", header("Cache-Control: max-age=5"), minutes(1, 1, 1)},
		{"a large max-age", header("Cache-Control: max-age=86400"), minutes(60, 60, 60)},
		{"an invalid max-age", header("Cache-Control: max-age=-7"), minutes(10, 10, 10)},
		{"no-store", header("Cache-Control: no-store, max-age=600"), minutes(1, 1, 1)},
		{"some of it spent in a cache", header("Cache-Control: max-age=600", "Age: 240"), minutes(6, 6, 6)},
		{"more than all of it", header("Cache-Control: max-age=600", "Age: 700"), minutes(1, 1, 1)},
		{"never any keys", http.NotFound, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9, 30e9}},
		{"no keys after a while", failAfter(1, header()), []time.Duration{600e9, 30e9, 30e9, 30e9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var fetched []fetch
			bubble(t, tc.answer, func(t *testing.T, i *issuer, cfg jwt.Config) {
				v := open(t, cfg, settingsFor(keysURL))
				pass(4 * time.Hour)
				v.Close()
				fetched = i.fetched()
			})
			if len(fetched) <= len(tc.want) {
				t.Fatalf("%d fetches in 4 hours, want more than %d", len(fetched), len(tc.want))
			}
			for i, want := range tc.want {
				if gap := fetched[i+1].at.Sub(fetched[i].at); gap > want || gap < want*9/10-time.Second/10 {
					t.Errorf("fetch %d came %v after the one before, want %v or up to a tenth less", i+1, gap, want)
				}
			}
		})
	}
}

// failAfter answers so many requests, and then fails.
func failAfter(n int, well http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if n--; n < 0 {
			http.NotFound(w, r)
			return
		}
		well(w, r)
	}
}

// TestWithdrawnInTime: a key is withdrawn, and no request has an unknown kid.
func TestWithdrawnInTime(t *testing.T) {
	s := es256("1")
	bubble(t, nil, func(t *testing.T, i *issuer, cfg jwt.Config) {
		i.publish(s)
		settings := settingsFor(keysURL)
		v := open(t, cfg, settings)
		token := s.sign(t, lasting())
		check(t, v, settings, token, "owner ann")
		i.publish(es256("2"))
		pass(8 * time.Minute)
		check(t, v, settings, token, "owner ann")
		pass(2 * time.Minute)
		check(t, v, settings, token, "invalid: unknown_key")
		v.Close()
	})
}

// TestOneTimer has unknown kids cause readings. Each takes the place of the next due one, so the keys are not read more
// and more often.
func TestOneTimer(t *testing.T) {
	s := es256("1")
	bubble(t, nil, func(t *testing.T, i *issuer, cfg jwt.Config) {
		i.publish(s)
		settings := settingsFor(keysURL)
		v := open(t, cfg, settings)
		unknown := es256("2").sign(t, lasting())
		for range 10 {
			pass(30 * time.Second)
			check(t, v, settings, unknown, "invalid: unknown_key")
		}
		before := len(i.fetched())
		pass(time.Hour)
		if n := len(i.fetched()) - before; n < 6 || n > 7 {
			t.Errorf("%d fetches in an hour, want one in 10 minutes", n)
		}
		v.Close()
	})
}

// TestStaleKeys: an endpoint is unreachable for longer than keys may be stale.
func TestStaleKeys(t *testing.T) {
	s := es256("1")
	bubble(t, nil, func(t *testing.T, i *issuer, cfg jwt.Config) {
		i.publish(s)
		settings := settingsFor(keysURL)
		v := open(t, cfg, settings)
		token := s.sign(t, lasting())
		check(t, v, settings, token, "owner ann")
		i.answers(http.NotFound)
		pass(24*time.Hour - time.Second)
		check(t, v, settings, token, "owner ann")
		pass(2 * time.Second)
		check(t, v, settings, token, "unavailable: no_keys")
		if stats := v.Sources()[0]; stats.Keys != 0 || stats.Failures < 200 {
			t.Errorf("stats %+v, want no keys and a failure every 30 s", stats)
		}
		i.publish(s)
		pass(30 * time.Second)
		check(t, v, settings, token, "owner ann")
		v.Close()
	})
}

// TestSlowEndpoint measures how long requests wait for keys: until just before their deadline, or until there are keys.
func TestSlowEndpoint(t *testing.T) {
	s := es256("1")
	slow := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * time.Second):
			_, _ = w.Write(document(s))
		case <-r.Context().Done():
		}
	}
	bubble(t, slow, func(t *testing.T, _ *issuer, cfg jwt.Config) {
		settings := settingsFor(keysURL)
		v := open(t, cfg, settings)
		token, unknown := s.sign(t, lasting()), es256("2").sign(t, lasting())
		waits := func(token string, limit time.Duration, want string, wait time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begin := time.Now()
			got := outcome(v.Identify(ctx, settings, token))
			if took := time.Since(begin); got != want || took != wait {
				t.Errorf("got %q after %v, want %q after %v", got, took, want, wait)
			}
		}
		waits(token, 200*time.Millisecond, "unavailable: no_keys", 195*time.Millisecond)
		waits(token, time.Millisecond, "unavailable: no_keys", 0)
		waits(token, time.Minute, "owner ann", 1805*time.Millisecond)
		waits(unknown, time.Minute, "invalid: unknown_key", 0) // the keys have just been read
		pass(31 * time.Second)
		waits(unknown, 200*time.Millisecond, "invalid: unknown_key", 195*time.Millisecond)
		waits(token, 200*time.Millisecond, "owner ann", 0)
		waits(unknown, time.Minute, "invalid: unknown_key", 1805*time.Millisecond)
		v.Close()
	})
}

// TestFile follows a file as it changes.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	write := func(text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second := es256("first"), es256("second")
	synctest.Test(t, func(t *testing.T) {
		var readings []string
		settings := settingsFor("")
		settings.JWKSFile = &path
		v := open(t, jwt.Config{OnReading: func(r jwt.Reading) {
			readings = append(readings, fmt.Sprintf("%d keys, error %t", r.Keys, r.Err != nil))
		}}, settings)
		one, two := first.sign(t, lasting()), second.sign(t, lasting())
		check(t, v, settings, one, "unavailable: no_keys")
		for _, step := range []struct {
			name     string
			change   func()
			one, two string
		}{
			{"the file comes", func() { write(document(first)) }, "owner ann", "invalid: unknown_key"},
			{"a key is added", func() { write(document(first, second)) }, "owner ann", "owner ann"},
			{"a key is withdrawn", func() { write(document(second)) }, "invalid: unknown_key", "owner ann"},
			{"half of it is written", func() { write([]byte(`{"keys":[`)) }, "invalid: unknown_key", "owner ann"},
			{"it vanishes", func() { _ = os.Remove(path) }, "invalid: unknown_key", "owner ann"},
			{
				"it is 5 MB", func() { write(append(document(first), make([]byte, 5<<20)...)) },
				"invalid: unknown_key", "owner ann",
			},
			{"it is good again", func() { write(document(first, second)) }, "owner ann", "owner ann"},
		} {
			step.change()
			pass(2 * time.Second)
			if got := outcome(v.Identify(t.Context(), settings, one)); got != step.one {
				t.Errorf("%s: the first key's token is %q, want %q", step.name, got, step.one)
			}
			if got := outcome(v.Identify(t.Context(), settings, two)); got != step.two {
				t.Errorf("%s: the second key's token is %q, want %q", step.name, got, step.two)
			}
		}
		v.Close()
		want := []string{
			"0 keys, error true", "1 keys, error false", "2 keys, error false", "1 keys, error false",
			"1 keys, error true", "1 keys, error true", "1 keys, error true", "2 keys, error false",
		}
		if diff := cmp.Diff(want, readings); diff != "" {
			t.Errorf("readings (-want +got)\n%s", diff)
		}
	})
}

// TestSettingsChange replaces the active issuers by others.
func TestSettingsChange(t *testing.T) {
	s := es256("1")
	bubble(t, nil, func(t *testing.T, i *issuer, cfg jwt.Config) {
		i.publish(s)
		at := func(path string) *jwt.Credential { return settingsFor("http://localhost" + path) }
		one, again, shared, two := at("/one"), at("/one"), at("/one"), at("/two")
		shared.Issuer = new("https://shared.example")
		token, other := s.sign(t, lasting()), s.sign(t, lasting())
		v := jwt.New(cfg)
		check(t, v, one, token, "unavailable: unknown_issuer")
		set := func(settings ...*jwt.Credential) {
			t.Helper()
			v.SetIssuers(settings)
			synctest.Wait()
		}
		before := 0
		fetched := func(want map[string]int) {
			t.Helper()
			got, all := map[string]int{}, i.fetched()
			for _, f := range all[before:] {
				got[f.path]++
			}
			before = len(all)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("fetches (-want +got)\n%s", diff)
			}
		}
		set(one, shared)
		fetched(map[string]int{"/one": 1})
		check(t, v, one, token, "owner ann")
		set(again, shared, two)
		fetched(map[string]int{"/two": 1}) // unchanged issuers cause no fetch
		if n := v.Cached(); n != 1 {
			t.Errorf("%d tokens known after the change, want 1", n)
		}
		check(t, v, again, token, "owner ann")
		if n := v.Cached(); n != 1 {
			t.Errorf("%d tokens known, want the one from before", n)
		}
		check(t, v, one, token, "owner ann") // a request from before the change
		set(two)
		check(t, v, again, token, "owner ann")
		check(t, v, again, es256("unknown").sign(t, lasting()), "invalid: unknown_key")
		check(t, v, one, token, "unavailable: unknown_issuer")
		pass(15 * time.Minute)
		fetched(map[string]int{"/two": 1}) // no issuer has its keys at /one
		check(t, v, two, other, "owner ann")
		want := []jwt.SourceStats{{Name: "http://localhost/two", Keys: 1}}
		got := v.Sources()
		if age := time.Since(got[0].LastSuccess); age > 10*time.Minute {
			t.Errorf("the last success was %v ago", age)
		}
		got[0].LastSuccess = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stats (-want +got)\n%s", diff)
		}
		v.Close()
		v.Close()
		set(one)
		check(t, v, two, other, "owner ann") // with the keys that were read
		check(t, v, one, token, "unavailable: unknown_issuer")
	})
}

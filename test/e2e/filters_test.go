package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// testBothFilters checks that owner and plan get from ext_authz into the descriptors of ratelimit.
func testBothFilters(t *testing.T, s *shop) {
	post := func(who claims, header ...[2]string) call {
		return call{method: http.MethodPost, path: "/posts", header: append(header, s.issuer.bearer(t, who))}
	}
	t.Run("the owner", func(t *testing.T) {
		if allowed, denied := s.tally(t, 6, post(claims{"sub": "emma"})); allowed != 4 {
			t.Errorf("got %d allowed and %d denied; want 4 and 2", allowed, denied)
		}
		if allowed, _ := s.tally(t, 1, post(claims{"sub": "finn"})); allowed != 1 {
			t.Error("the first post of another owner is denied")
		}
		// Headers of the client that imitate metadata or identity headers change nothing.
		spoofed := post(claims{"sub": "emma"}, [2]string{"x-auth-owner", "gina"}, [2]string{"x-user-id", "gina"},
			[2]string{"x-ext-authz-owner", "gina"})
		if allowed, _ := s.tally(t, 1, spoofed); allowed != 0 {
			t.Error("one more post is allowed with the identity headers of another owner")
		}
	})
	t.Run("the plan", func(t *testing.T) {
		if allowed, denied := s.tally(t, 4, post(claims{"sub": "hans", "plan": "trial"})); allowed != 2 {
			t.Errorf("on trial: got %d allowed and %d denied; want 2 and 2", allowed, denied)
		}
		if allowed, _ := s.tally(t, 3, post(claims{"sub": "hans", "plan": "gold"})); allowed != 2 {
			t.Errorf("on gold: got %d of 3 allowed, want the 2 that are left of 4", allowed)
		}
	})
	t.Run("limits of the virtual host apply to routes with their own limits", func(t *testing.T) {
		call := post(claims{"sub": "ines"})
		call.from = "127.0.0.9"
		if allowed, _ := s.tally(t, 4, call); allowed != 3 {
			t.Errorf("got %d of 4 allowed, want the 3 of the address", allowed)
		}
	})
	t.Run("if ext_authz denies, Envoy does not call ratelimit", func(t *testing.T) {
		before := s.ratelimitStat("ok") + s.ratelimitStat("over_limit")
		if a := s.do(t, get("/")); a.status != http.StatusUnauthorized {
			t.Fatalf("got %d, want 401", a.status)
		}
		if calls := s.ratelimitStat("ok") + s.ratelimitStat("over_limit"); calls != before {
			t.Errorf("Envoy called ratelimit %d times, want 0", calls-before)
		}
	})
	// Both filters limit one address and one owner.
	const few, address = `"few";q=3;w=3600`, `"address";q=3;w=3600`
	from := func(sub, path string) call {
		c := get(path, s.issuer.bearer(t, claims{"sub": sub}))
		c.from = "127.0.0.10"
		return c
	}
	t.Run("the headers of both reach the client", func(t *testing.T) {
		for left := 2; left >= 1; left-- {
			a := s.do(t, from("jane", "/few/things"))
			wantList(t, a, "Ratelimit", fmt.Sprintf(`"few";r=%d;`, left), fmt.Sprintf(`"address";r=%d;`, left))
			wantList(t, a, "Ratelimit-Policy", few, address)
		}
	})
	t.Run("a denial of ratelimit has its headers and those of ext_authz", func(t *testing.T) {
		if allowed, _ := s.tally(t, 1, from("kurt", "/")); allowed != 1 {
			t.Fatal("the limit of the address is used up too early")
		}
		a := s.do(t, from("jane", "/few/things"))
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("got %d, retry-after %q; want 429 and a time", a.status, a.header.Get("Retry-After"))
		}
		wantList(t, a, "Ratelimit", `"few";r=0;`, `"address";r=0;`)
		wantList(t, a, "Ratelimit-Policy", few, address)
	})
	t.Run("a denial of ext_authz has only its own headers", func(t *testing.T) {
		a := s.do(t, from("jane", "/few/things"))
		if a.status != http.StatusTooManyRequests {
			t.Errorf("got %d, want 429", a.status)
		}
		wantList(t, a, "Ratelimit", `"few";r=0;`)
	})
}

// wantList checks that a header is a list (RFC 9651) of items with these beginnings, in any order. The list may have
// several lines.
func wantList(t *testing.T, a answer, name string, want ...string) {
	t.Helper()
	var items []string
	for _, line := range a.header.Values(name) {
		items = append(items, strings.Split(line, ", ")...)
	}
	slices.Sort(items)
	slices.Sort(want)
	if !slices.EqualFunc(items, want, strings.HasPrefix) {
		t.Errorf("%d, %s: got %q, want items that begin %q", a.status, name, items, want)
	}
}

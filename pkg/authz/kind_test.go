package authz_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules"
)

// ticket is a kind of credential that only this test has. A ticket is valid for one owner of the list.
type ticket struct{ owners []string }

func (*ticket) Traits() credential.Traits {
	return credential.Traits{Name: "ticket", Scheme: "Ticket", Secret: true, Gives: []string{"label"}}
}

func (*ticket) Place() credential.Place {
	return credential.Place{In: credential.Header, Name: "x-ticket"}
}

func (t *ticket) String() string { return strings.Join(t.owners, "+") }

func (t *ticket) Check(m *ratelimit.Mistakes, path string) {
	if len(t.owners) == 0 {
		m.At(path).Fail("`ticket` without owners", "add one")
	}
}

func (t *ticket) Identify(_ context.Context, _ credential.Kind, sent string) (credential.Identity, error) {
	switch {
	case sent == "late":
		return credential.Identity{}, &credential.Error{Cause: "used", Kind: credential.ErrExpired}
	case !slices.Contains(t.owners, sent):
		return credential.Identity{}, credential.Invalid("unknown owner")
	}
	return credential.Identity{Method: "ticket", Owner: sent, Labels: map[string]string{"row": "1"}}, nil
}

// TestAddAKindOfCredential adds a kind. A policy uses it, counts its refusals, explains it, and refuses its mistakes.
func TestAddAKindOfCredential(t *testing.T) {
	field := &authz.CredentialAction{Field: credential.NewPath("label.row")}
	label := authz.RateLimit{Actions: []authz.Action{{Credential: field}}}
	policy := &authz.Policy{
		Credentials: []authz.Credential{{Own: &ticket{[]string{"ann", "bob"}}}}, Limits: []authz.RateLimit{label},
		Refused: []authz.RateLimit{{Actions: []authz.Action{{RemoteAddress: &authz.RemoteAddress{}}}}},
	}
	if mistakes := policy.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	domains := map[string]*authz.Policy{"shop": policy}
	limits := ratelimit.NewRules(nil, ratelimit.RulesOptions{})
	policies := authz.NewPolicies(domains, limits, reply.Headers{})
	a := authz.New(authz.Config{Policies: func() *authz.Policies { return policies }})
	for _, c := range []struct{ ticket, want string }{
		{"ann", "200 allowed, owner ann, label.row=1, removed true"},
		{"", `401 absent, asks for Ticket realm="shop"`},
		{"eve", "403 invalid (unknown owner)"},
		{"late", "403 expired (used)"},
	} {
		r := &authz.Request{HTTP: true, Method: "GET", Host: "shop.example", Path: "/"}
		if c.ticket != "" {
			r.Headers = authz.Headers{{Name: "x-ticket", Value: c.ticket}}
		}
		var p authz.Pending
		if !a.BeginNow(r, &p) {
			t.Fatalf("%q is not decided at once", c.ticket)
		}
		query := p.Query.Descriptors
		a.Finish(&p, nil)
		if got := ticketText(&p.Decision, query); got != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.ticket, got, c.want)
		}
	}

	failures := map[string]uint64{}
	a.EachFailure(func(reason reply.Reason, answer authz.FailureAnswer, n uint64) {
		if n > 0 {
			failures[fmt.Sprint(reason, " ", answer)] = n
		}
	})
	want := map[string]uint64{"absent refused": 1, "invalid refused": 1, "expired refused": 1}
	if diff := cmp.Diff(want, failures); diff != "" {
		t.Errorf("failures (-want +got)\n%s", diff)
	}
	active := &rules.Active{Set: rules.Set{Policies: domains}, Limits: limits, Policies: policies}
	if dump := rules.Dump(active); !strings.Contains(dump, "credentials=ticket(ann+bob) ") {
		t.Errorf("the dump does not show the ticket:\n%s", dump)
	}

	policy.Credentials = []authz.Credential{{Own: &ticket{}}, {Own: &ticket{[]string{"ann"}}}}
	var texts []string
	for _, m := range policy.Check() {
		texts = append(texts, m.Path+": "+m.Message)
	}
	wantTexts := []string{
		"credentials[0].ticket: `ticket` without owners",
		"credentials[1]: this credential is never tried: the one at credentials[0] reads the same place of a request",
	}
	if diff := cmp.Diff(wantTexts, texts); diff != "" {
		t.Errorf("mistakes (-want +got)\n%s", diff)
	}
}

// ticketText returns a decision, and the limits of the request, in one line.
func ticketText(d *authz.Decision, limits []descriptors.Descriptor) string {
	if d.Verdict == authz.Allowed {
		entry, removed := limits[0].Entries[0], slices.Contains(d.Strip.List(), "x-ticket")
		return fmt.Sprintf("200 %s, owner %s, %s=%s, removed %t", d.Reason, d.Identity.Owner, entry.Key, entry.Value, removed)
	}
	text := fmt.Sprintf("%d %s", d.Status, d.Reason)
	if d.Cause != "" {
		text += " (" + d.Cause + ")"
	}
	for _, h := range d.ToClient {
		text += ", asks for " + h.Value
	}
	return text
}

// TestKindsOfRuleFiles: the name of each kind is its key in rule files.
func TestKindsOfRuleFiles(t *testing.T) {
	for field := range reflect.TypeFor[authz.Credential]().Fields() {
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		kind := reflect.New(field.Type.Elem()).Interface().(credential.Kind)
		if key := field.Tag.Get("yaml"); kind.Traits().Name != key {
			t.Errorf("the kind %q has the key %q", kind.Traits().Name, key)
		}
	}
}

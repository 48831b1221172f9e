package auth_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// FuzzResponse checks the answers for any request and decision, over gRPC and over HTTP. The answer is a message. Only
// an allowed one has status OK; over gRPC, that is not the HTTP status, which a quota has, too. No header is both set
// and removed, and none breaks its message.
func FuzzResponse(f *testing.F) {
	f.Add(marshal(f, parse(f, fullRequest)), uint8(1), 0,
		"owner\xff", "x-owner", "a\r\nb: c", "x_owner", "key", "body\xff", int64(5))
	f.Add([]byte{}, uint8(0), 200, "", "", "", "", "", "", int64(-1))
	f.Add([]byte{}, uint8(2), 429, "o", "X-Owner", "v", "x-owner", "", "{}", int64(1))
	f.Add([]byte{}, uint8(3), 200, "o", "x-owner", "v", "x-plan", "", "{}", int64(1))
	f.Add([]byte{}, uint8(9), 599, "o", "content-length", "v", "Host", "%", "{}", int64(1))
	f.Fuzz(func(
		t *testing.T, b []byte, verdict uint8, status int, owner, name, value, remove, query, body string, retry int64,
	) {
		r, err := auth.Unmarshal(b)
		if err != nil {
			return
		}
		headers := []reply.Header{{Name: name, Value: value}, {Name: "x-fixed", Value: owner}, {Name: name, Value: owner}}
		d := authz.Decision{
			Verdict: authz.Verdict(verdict), Reason: reply.ReasonOverLimit, Status: status,
			Identity:   credential.Identity{Owner: owner, KeyID: value},
			Limits:     &ratelimit.Result{RetryAfter: retry},
			ToUpstream: headers, ToClient: headers, Remove: []string{remove}, RemoveQuery: []string{query},
			Body: []byte(body), ContentType: value,
		}
		for _, grpc := range []bool{false, true} {
			if grpc {
				r.Headers = authz.Headers{{Name: "content-type", Value: "application/grpc"}}
			}
			res := new(authv3.CheckResponse)
			if err := proto.Unmarshal(auth.Marshal(r, d), res); err != nil {
				t.Fatalf("%+v: %v", d, err)
			}
			checkResponse(t, &d, res)
		}
		checkHTTP(t, &d)
	})
}

func checkResponse(t *testing.T, d *authz.Decision, res *authv3.CheckResponse) {
	t.Helper()
	allowed := d.Verdict == authz.Allowed
	if got := codes.Code(res.GetStatus().GetCode()) == codes.OK; got != allowed {
		t.Errorf("verdict %d: status %v", d.Verdict, res.GetStatus())
	}
	ok := res.GetOkResponse()
	if allowed != (ok != nil) {
		t.Errorf("verdict %d: %v", d.Verdict, res)
	}
	options := slices.Concat(ok.GetHeaders(), ok.GetResponseHeadersToAdd(),
		res.GetDeniedResponse().GetHeaders(), res.GetErrorResponse().GetHeaders())
	for _, o := range options {
		if name := o.GetHeader().GetKey(); !httpguts.ValidHeaderFieldName(name) || name != strings.ToLower(name) {
			t.Errorf("header name %q", name)
		}
		if v := o.GetHeader().GetValue(); strings.ContainsAny(v, "\r\n\x00") {
			t.Errorf("header value %q", v)
		}
	}
	for _, o := range ok.GetHeaders() {
		if slices.Contains(ok.GetHeadersToRemove(), o.GetHeader().GetKey()) {
			t.Errorf("%q is set and removed", o.GetHeader().GetKey())
		}
	}
	if !allowed {
		status := max(res.GetDeniedResponse().GetStatus().GetCode(), res.GetErrorResponse().GetStatus().GetCode())
		if (status < 400 || status > 599) && (status != http.StatusOK || d.Verdict != authz.Answered) {
			t.Errorf("refused with status %d", status)
		}
	}
}

func checkHTTP(t *testing.T, d *authz.Decision) {
	t.Helper()
	recorder := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/check/x", nil)
	r := auth.HTTPRequest(req, "/x", auth.HTTPHeaders{})
	decision := withLookalikes(*d, r)
	var a auth.Answer
	a.Decide(r, &decision)
	a.WriteHTTP(recorder)
	got := recorder.Code
	if (got == http.StatusOK) != (d.Verdict == authz.Allowed) || got != http.StatusOK && got < 400 {
		t.Errorf("verdict %d: HTTP status %d", d.Verdict, got)
	}
}

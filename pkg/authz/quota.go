package authz

import (
	"net/http"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// QuotaReading is when a request reads the quota of its client (Policy.QuotaPath) instead of asking for a decision.
type QuotaReading uint8

const (
	// QuotaByPath means that a GET or HEAD request for the quota path does, unless it is of a gRPC client.
	QuotaByPath QuotaReading = iota
	// QuotaNever is for a transport whose caller would take the answer for a permission.
	QuotaNever
	// QuotaAlways is for a transport that asks for nothing else. It does not know the address of the client.
	QuotaAlways
)

// readsQuota reports whether a request reads the quota of its client. path is a result of plainPath.
func (p *policy) readsQuota(r *Request, path string) bool {
	return r.Quota == QuotaAlways || r.Quota == QuotaByPath && r.HTTP && p.quotaPath != "" && path == p.quotaPath &&
		(r.Method == "GET" || r.Method == "HEAD") && !r.GRPC()
}

// showQuota answers with the limits of the client, none of which was charged. res is nil if no limit applies. What a
// store error policy makes of a store that does not answer is not the quota, so the request is then undecided.
func (d *Decision) showQuota(res *ratelimit.Result) {
	if res != nil && (res.Err != nil || res.Decider.Undecided()) {
		d.undecided()
		return
	}
	d.Verdict, d.Reason, d.Status, d.Limits = Answered, reply.ReasonQuota, http.StatusOK, res
	if res != nil { // a limit without room denies the next request, not this one
		res.Allowed, res.RetryAfter = true, 0
	}
}

// checkQuotaPath reports a quota path that no request has, or whose answer is always the same.
func (c *checker) checkQuotaPath() {
	const at = "quota_path"
	path := c.QuotaPath
	switch {
	case path == "":
		return
	case strings.ContainsAny(path, "{}*"):
		c.At(at).Fail(suggest.Quoted(path)+" is not one path", "write a whole path, such as `/quota`")
		return
	case !c.checkPath(at, path):
		return
	case len(c.Credentials) == 0:
		c.Key(at, "credentials").Fail("`quota_path` without `credentials`: no request for it has one, so each gets 401",
			"add `credentials`, or delete `quota_path`")
	case len(c.Limits) == 0:
		c.Key(at, "limits").Warn("`quota_path` shows nothing: there are no `limits`", "add `limits`, or delete `quota_path`")
	}
	r := &Request{HTTP: true, Method: "GET"}
	decides := func(a Access) bool { // for every host
		rule := a.compile()
		return len(a.Hosts) == 0 && a.Enforce == nil && rule.match(r, "", path, otherEnd(path))
	}
	rules := c.WithDefaults().Access
	i := slices.IndexFunc(rules, decides)
	if i < 0 {
		return
	}
	key, _ := rules[i].Path.Form()
	switch spot := c.At(at, ratelimit.Element("access", i)); {
	case rules[i].Require == Denied:
		spot.Fail("an access rule denies the quota path", "put a rule before it: `- {path: {exact: "+path+"}}`")
	case rules[i].Require == Open && key == "exact":
		spot.Warn("the access rule with `require: open` has no effect for the quota path, which needs a credential",
			"delete the rule")
	}
}

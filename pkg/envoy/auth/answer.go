package auth

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/reply"
)

// answer is a decision in what can be sent to Envoy, over gRPC and over HTTP. Its zero value refuses.
type answer struct {
	decision *authz.Decision
	// status is the HTTP status for the client, unless the request is allowed.
	status int
	// toUpstream are headers to set on the request, remove those to take from it; no name is in both.
	toUpstream []reply.Header
	remove     []string
	// removeQuery are query parameters to take from the request, as they are spelt in it.
	removeQuery []string
	// toClient are headers for the client.
	toClient []reply.Header
	// body is that of a refusal.
	body string
	// dropped counts headers that could not be sent.
	dropped int
}

// newAnswer says what is sent for the decision of a request.
func newAnswer(r *authz.Request, d *authz.Decision) answer {
	a := answer{decision: d}
	a.addToClient(d.ToClient)
	if d.Verdict == authz.Allowed {
		a.forUpstream(r, d)
		return a
	}
	a.status = refusalStatus(d)
	if d.Verdict == authz.Undecided && !slices.ContainsFunc(a.toClient, func(h reply.Header) bool { return h.Name == "retry-after" }) {
		a.toClient = append(a.toClient, reply.Header{Name: "retry-after", Value: "1"})
	}
	// The type of an answer without a body is Envoy's affair, and that of a gRPC answer.
	a.toClient = slices.DeleteFunc(a.toClient, func(h reply.Header) bool { return h.Name == "content-type" })
	if r.GRPC() {
		a.body = wire.ValidText(reason(d).Sentence(d.Limits)) // in place of the body
		a.toClient = append(a.toClient, grpcHeaders(a.status, a.body, d)...)
		return a
	}
	a.body = wire.ValidText(string(d.Body))
	if len(d.Body) > 0 && d.ContentType != "" {
		a.addToClient([]reply.Header{{Name: "content-type", Value: d.ContentType}})
	}
	return a
}

// reason is that of a refusal. A decision that is not made says so, whatever its reason.
func reason(d *authz.Decision) reply.Reason {
	if d.Verdict == authz.Undecided {
		return reply.ReasonUndecided
	}
	return d.Reason
}

// refusalStatus is the status for the client: what the decision says if that is one of an error, so that no mistake makes a
// success of a refusal.
func refusalStatus(d *authz.Decision) int {
	least, usual := 400, http.StatusForbidden
	if d.Verdict == authz.Undecided {
		least, usual = 500, http.StatusServiceUnavailable
	}
	if d.Status < least || d.Status > 599 {
		return usual
	}
	return d.Status
}

// addToClient adds headers for the client. Values of one name make one list (RFC 9110, 5.3): of several headers of a name Envoy
// keeps one on an answer of the upstream's, and all on its own.
func (a *answer) addToClient(headers []reply.Header) {
	for _, h := range headers {
		name, nameOK := sendableName(h.Name)
		value, valueOK := sendableValue(h.Value)
		if !nameOK || !valueOK {
			a.dropped++
			continue
		}
		if i := slices.IndexFunc(a.toClient, func(h reply.Header) bool { return h.Name == name }); i >= 0 {
			a.toClient[i].Value += ", " + value
			continue
		}
		a.toClient = append(a.toClient, reply.Header{Name: name, Value: value})
	}
}

// forUpstream says what to change in the request. What cannot be set is removed, or the upstream would take the client's own
// for it.
func (a *answer) forUpstream(r *authz.Request, d *authz.Decision) {
	a.remove = make([]string, 0, len(d.Remove)+len(d.ToUpstream))
	for _, name := range d.Remove {
		if name, ok := sendableName(name); ok {
			a.remove = append(a.remove, name)
		} else {
			a.dropped++
		}
	}
	for _, h := range d.ToUpstream {
		name, nameOK := sendableName(h.Name)
		value, valueOK := sendableValue(h.Value)
		if !nameOK || !valueOK {
			a.dropped++
		}
		switch {
		case !nameOK:
		case !valueOK, value == "": // Envoy may leave out a header without a value
			a.remove = append(a.remove, name)
		default:
			a.toUpstream = append(a.toUpstream, reply.Header{Name: name, Value: value})
		}
	}
	slices.Sort(a.remove)
	a.remove = slices.Compact(a.remove)
	a.toUpstream = slices.DeleteFunc(a.toUpstream, func(h reply.Header) bool {
		_, removed := slices.BinarySearch(a.remove, h.Name)
		return removed
	})
	a.removeQuery = spellings(r.Path, d.RemoveQuery)
}

// spellings returns how parameters of these names are spelt in the query of the path: Envoy compares without decoding, and
// %61pi_key is api_key to an upstream.
func spellings(path string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	_, query, _ := strings.Cut(path, "?")
	found := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		spelt, _, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(spelt); err == nil && slices.Contains(names, name) {
			found[wire.ValidText(spelt)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

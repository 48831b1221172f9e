package auth

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// Answer is a decision in a form for Envoy, over gRPC and HTTP. The zero value refuses. It can be used again.
type Answer struct {
	// Status is the HTTP status for the client, 0 if the request is allowed.
	Status int
	// Dropped counts headers that could not be sent.
	Dropped int

	decision *authz.Decision
	// toUpstream are headers to set on the request. remove are headers to remove from it, sorted, beside those of
	// Decision.Strip. No name is in two of the three.
	toUpstream []reply.Header
	remove     []string
	stripped   stripped
	// removeQuery are query parameters to remove from the request, as spelled in it.
	removeQuery []string
	// toClient are headers for the client.
	toClient []reply.Header
	// body is the body of an answer to the client.
	body string
}

// Decide makes this the answer for the decision on a request. Both must not change before it is sent.
func (a *Answer) Decide(r *authz.Request, d *authz.Decision) {
	*a = Answer{
		decision: d, toUpstream: a.toUpstream[:0], remove: a.remove[:0], stripped: a.stripped, toClient: a.toClient[:0],
	}
	a.addToClient(d.ToClient...)
	if d.Verdict == authz.Allowed {
		a.forUpstream(r, d)
		return
	}
	why := reason(d)
	a.Status = why.SafeStatus(d.Status)
	if d.Verdict == authz.Answered && r.Quota != authz.QuotaNever { // there, 200 would allow the request
		a.Status = http.StatusOK
	}
	a.toClient = why.AddRetryAfter(a.toClient)
	// Envoy sets the content type of an answer without a body, and of a gRPC answer.
	a.toClient = slices.DeleteFunc(a.toClient, func(h reply.Header) bool { return h.Name == "content-type" })
	if r.GRPC() && d.Verdict != authz.Answered {
		a.body = wire.ValidText(why.Sentence(d.Limits)) // sent instead of the body
		a.toClient = appendGRPC(a.toClient, why, a.Status, d.Limits)
		return
	}
	a.body = wire.ValidText(texts.View(d.Body)) // which does not change before the answer is sent
	if len(d.Body) > 0 && d.ContentType != "" {
		a.addToClient(reply.Header{Name: "content-type", Value: d.ContentType})
	}
}

// Reset drops all texts of the request and of the decision.
func (a *Answer) Reset() {
	*a = Answer{
		toUpstream: texts.Clear(a.toUpstream), remove: texts.Clear(a.remove), stripped: a.stripped,
		toClient: texts.Clear(a.toClient),
	}
}

// reason returns the reason of a refusal. It is always ReasonUndecided for an undecided request.
func reason(d *authz.Decision) reply.Reason {
	if d.Verdict == authz.Undecided {
		return reply.ReasonUndecided
	}
	return d.Reason
}

// addToClient adds headers for the client. Values of one name make one list (RFC 9110, 5.3). Envoy would keep one of
// several headers on a response of the upstream, but all on its own responses.
func (a *Answer) addToClient(headers ...reply.Header) {
	for _, h := range headers {
		name, nameOK := httpheader.Sendable(h.Name)
		value, valueOK := sendableValue(h.Value)
		if !nameOK || !valueOK {
			a.Dropped++
			continue
		}
		if i := slices.IndexFunc(a.toClient, func(h reply.Header) bool { return h.Name == name }); i >= 0 {
			a.toClient[i].Value += ", " + value
			continue
		}
		a.toClient = append(a.toClient, reply.Header{Name: name, Value: value})
	}
}

// forUpstream sets the changes to the request. A header that cannot be set is removed, so that the upstream does not
// accept the client's header instead.
func (a *Answer) forUpstream(r *authz.Request, d *authz.Decision) {
	for _, name := range d.Remove {
		if name, ok := httpheader.Sendable(name); ok {
			a.remove = append(a.remove, name)
		} else {
			a.Dropped++
		}
	}
	for _, h := range d.ToUpstream {
		name, nameOK := httpheader.Sendable(h.Name)
		value, valueOK := sendableValue(h.Value)
		if !nameOK || !valueOK {
			a.Dropped++
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
	a.remove = slices.DeleteFunc(slices.Compact(a.remove), d.Strip.Has)
	a.toUpstream = slices.DeleteFunc(a.toUpstream, func(h reply.Header) bool {
		return slices.Contains(a.remove, h.Name) || d.Strip.Has(h.Name)
	})
	a.removeQuery = spellings(r.Path, d.RemoveQuery)
}

// spellings returns how parameters of these names are spelled in the query of the path. Envoy compares names without
// decoding them, but an upstream reads %61pi_key as api_key.
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

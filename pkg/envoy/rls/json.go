package rls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// maxJSON bounds a request to /json.
const maxJSON = 1 << 20

// ServeHTTP answers a RateLimitRequest in JSON with a RateLimitResponse in JSON. The status is 200 if the request may
// pass and 429 if it is over the limit. It is 400 for an unreadable request and 503 for an undecided one. The headers
// for the client are in the body, as in envoyproxy/ratelimit, and are also headers of this response.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("the request has more than %d bytes", maxJSON), http.StatusBadRequest)
		return
	}
	if err != nil {
		http.Error(w, "the request could not be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	if objects(body) > maxObjects {
		http.Error(w, fmt.Sprintf("%v, and %v", errDescriptors, errEntries), http.StatusBadRequest)
		return
	}
	m := new(ratelimitv3.RateLimitRequest)
	if err := protojson.Unmarshal(body, m); err != nil {
		http.Error(w, fmt.Sprintf("no RateLimitRequest in JSON: %v\nwant for example %s", err, Example),
			http.StatusBadRequest)
		return
	}
	message, err := proto.Marshal(m)
	var q ratelimit.Query
	if err == nil {
		err = new(parts).unmarshal(string(message), &q)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	results := make([]ratelimit.Result, 1)
	s.cfg.Limiter.DecideAll(r.Context(), []ratelimit.Query{q}, results)
	res := results[0]
	if err := s.decided(r.Context(), &q, &res); err != nil {
		http.Error(w, err.Error(), httpStatus(err))
		return
	}
	answer := new(ratelimitv3.RateLimitResponse)
	err = proto.Unmarshal(s.appendResponse(nil, &q, &res, new(reply.List)), answer)
	if err == nil {
		body, err = protojson.Marshal(answer)
	}
	var compact bytes.Buffer // protojson adds spaces in some builds, on purpose
	if err == nil {
		err = json.Compact(&compact, body)
	}
	if err != nil {
		http.Error(w, "the answer could not be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(httpCode(&res))
	compact.WriteByte('\n')
	_, _ = w.Write(compact.Bytes()) // an error means that the client has gone
}

// maxObjects bounds the objects of a request: itself, its descriptors, and the limit and entries of each descriptor.
const maxObjects = 1 + maxDescriptors*(2+maxEntries)

// objects counts the objects in a JSON text. A text of 1 MB can have 300,000 objects, for which the generated code
// would allocate 100 times their size.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++ // skip the escaped character, which may be a quote
		case !quoted && c == '{':
			n++
		}
	}
	return n
}

// Example is a request that the sample rules limit.
const Example = `{"domain":"sample","descriptors":[{"entries":[{"key":"api_key","value":"demo"}]}]}`

func httpCode(res *ratelimit.Result) int {
	switch {
	case res.Allowed:
		return http.StatusOK
	case res.Source == ratelimit.FromPolicyDeny:
		return reply.ReasonUndecided.Status()
	}
	return reply.ReasonOverLimit.Status()
}

func httpStatus(err error) int {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.InvalidArgument {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

package loadgen

import "strconv"

// Client is the kind of client whose header blocks the requests have: it decides what a server has to decode.
type Client string

// The kinds of clients.
const (
	// Envoy sends :path in full in each request, and all other fields as indexes.
	Envoy Client = "envoy"
	// Traced is Envoy with tracing: each request also has another traceparent, which shifts all indexes.
	Traced Client = "traced"
	// Deadline is grpc-go with deadlines: each request has another grpc-timeout, and all other fields are indexes.
	Deadline Client = "deadline"
	// Indexed is a client that sends all fields as indexes, so that all blocks but the first are equal.
	Indexed Client = "indexed"
)

// Clients are all kinds of clients.
var Clients = []Client{Envoy, Traced, Deadline, Indexed}

// field is a header that the client sends.
type field struct{ name, value string }

// fields are those that the client of a plan sends, in its order. TestBlocksOfEnvoy compares them with a real Envoy.
// Fields without a value have another one in each request, except for tracestate.
func (p *Plan) fields() []field {
	path, authority, scheme := p.Message.path, p.authority(), "http"
	if p.TLS != nil {
		scheme = "https"
	}
	timeout := strconv.FormatInt(p.Timeout.Milliseconds(), 10)
	switch {
	case p.Message.keyHeader != "":
		return []field{
			{":method", "GET"}, {":path", path}, {":authority", authority}, {":scheme", scheme},
			{"user-agent", "extauthz"}, {p.Message.keyHeader, ""},
		}
	case p.Client == Deadline:
		return []field{
			{":method", "POST"}, {":scheme", scheme}, {":path", path}, {":authority", authority},
			{"content-type", "application/grpc"}, {"user-agent", "grpc-go/1.85.0"}, {"te", "trailers"}, {"grpc-timeout", ""},
		}
	}
	fields := []field{
		{":method", "POST"}, {":path", path}, {":authority", authority}, {":scheme", scheme},
		{"te", "trailers"}, {"grpc-timeout", timeout + "m"}, {"content-type", "application/grpc"},
	}
	if p.Client == Traced {
		fields = append(fields, field{"traceparent", ""}, field{"tracestate", ""})
	}
	return append(fields, field{"x-envoy-internal", "true"}, field{"x-forwarded-for", "192.0.2.2"},
		field{"x-envoy-expected-rq-timeout-ms", timeout})
}

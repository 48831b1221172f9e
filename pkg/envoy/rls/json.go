package rls

import (
	"bytes"
	"encoding/json"
	"fmt"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/reply"
)

// MaxJSON bounds a request in JSON, in bytes.
const MaxJSON = 1 << 20

// FromJSON returns the message of a RateLimitRequest that body has in JSON. The error is for the client.
func FromJSON(body []byte) (message []byte, err error) {
	if len(body) > MaxJSON {
		return nil, fmt.Errorf("the request has more than %d bytes", MaxJSON)
	}
	if objects(body) > maxObjects {
		return nil, fmt.Errorf("%w, and %w", errDescriptors, errEntries)
	}
	m := new(ratelimitv3.RateLimitRequest)
	if err := protojson.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("no RateLimitRequest in JSON: %w\nwant for example %s", err, Example)
	}
	return proto.Marshal(m)
}

// ToJSON returns the message of a RateLimitResponse in JSON, and its headers for the client.
func ToJSON(message []byte) (body []byte, headers []reply.Header, err error) {
	m := new(ratelimitv3.RateLimitResponse)
	if err := proto.Unmarshal(message, m); err != nil {
		return nil, nil, err
	}
	spaced, err := protojson.Marshal(m)
	if err != nil {
		return nil, nil, err
	}
	for _, h := range m.GetResponseHeadersToAdd() {
		headers = append(headers, reply.Header{Name: h.GetKey(), Value: h.GetValue()})
	}
	var compact bytes.Buffer // protojson adds spaces in some builds, on purpose
	err = json.Compact(&compact, spaced)
	return compact.Bytes(), headers, err
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

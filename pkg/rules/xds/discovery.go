package xds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/wire"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Fields of envoy.service.discovery.v3 DiscoveryRequest, of its Node and its google.rpc.Status, as tags on the wire.
const (
	requestVersion = 1<<3 | wire.Bytes
	requestNode    = 2<<3 | wire.Bytes
	requestType    = 4<<3 | wire.Bytes
	requestNonce   = 5<<3 | wire.Bytes
	requestError   = 6<<3 | wire.Bytes

	nodeID       = 1<<3 | wire.Bytes
	nodeMetadata = 3<<3 | wire.Bytes

	statusCode    = 1<<3 | wire.Varint
	statusMessage = 2<<3 | wire.Bytes
)

// Fields of envoy.service.discovery.v3 DiscoveryResponse, as tags on the wire.
const (
	responseVersion   = 1<<3 | wire.Bytes
	responseResources = 2<<3 | wire.Bytes
	responseType      = 4<<3 | wire.Bytes
	responseNonce     = 5<<3 | wire.Bytes
)

// Node is how the server knows this client.
type Node struct {
	// ID selects the rules at most servers.
	ID string
	// Metadata has the types of a JSON object.
	Metadata map[string]any
}

// ParseMetadata reads a JSON object, or the key=value pairs of envoyproxy/ratelimit. Its error does not show the text.
func ParseMetadata(text string) (map[string]any, error) {
	metadata := map[string]any{}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		if err := json.Unmarshal([]byte(text), &metadata); err != nil {
			return nil, fmt.Errorf("this is not a JSON object: want one such as {\"team\": \"shop\"}, or team=shop,zone=a")
		}
		return metadata, nil
	}
	if text == "" {
		return metadata, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("want key=value pairs with commas, such as team=shop,zone=a, or a JSON object")
		}
		metadata[key] = value
	}
	return metadata, nil
}

// subscription returns the first request of a stream, without a version, so that the server always sends its state.
func subscription(n Node) []byte {
	b := wire.AppendMessage(nil, requestNode, func(b []byte) []byte {
		b = wire.AppendText(b, nodeID, wire.ValidText(n.ID))
		return wire.AppendMessage(b, nodeMetadata, func(b []byte) []byte { return wire.AppendFields(b, n.Metadata) })
	})
	return wire.AppendText(b, requestType, typeURL)
}

// answer returns the request that answers a response. It accepts the response, or refuses it because of its mistakes.
// version is that of the last accepted response of the stream, "" if there is none.
func answer(r *response, version, mistakes string) []byte {
	b := wire.AppendText(nil, requestVersion, wire.ValidText(version))
	b = wire.AppendText(b, requestType, typeURL)
	b = wire.AppendText(b, requestNonce, wire.ValidText(r.nonce))
	if mistakes == "" {
		return b
	}
	return wire.AppendMessage(b, requestError, func(b []byte) []byte {
		b = wire.AppendVarint(b, statusCode, uint64(codes.InvalidArgument))
		return wire.AppendText(b, statusMessage, wire.ValidText(mistakes))
	})
}

// response is a DiscoveryResponse.
type response struct {
	version, nonce, typeURL string
	resources               []anyMessage
}

// anyMessage is a google.protobuf.Any.
type anyMessage struct{ typeURL, value string }

// readResponse reads a DiscoveryResponse as far as it is well-formed, and at most maxDescriptors resources.
func readResponse(msg string) (r *response, err error) {
	r = new(response)
	var tooMany error
	f := wire.Read(msg)
	for f.Next() {
		switch f.Tag {
		case responseVersion:
			r.version = f.Text
		case responseType:
			r.typeURL = f.Text
		case responseNonce:
			r.nonce = f.Text
		case responseResources:
			if len(r.resources) == maxDescriptors {
				tooMany = errTooMany // the fields that follow are needed for the answer
				continue
			}
			url, value, err := wire.ReadEntry(f.Text)
			if r.resources = append(r.resources, anyMessage{url, value}); err != nil {
				return r, err
			}
		}
	}
	return r, cmp.Or(f.Err(), tooMany)
}

package auth

import (
	"fmt"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// FromJSON returns the message of a CheckRequest that body has in JSON, as protobuf defines it.
func FromJSON(body []byte) (message []byte, err error) {
	m := new(authv3.CheckRequest)
	if err := protojson.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("no CheckRequest in JSON: %w", err)
	}
	return proto.Marshal(m)
}

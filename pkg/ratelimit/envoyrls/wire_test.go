package envoyrls_test

import (
	"errors"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/pkg/ratelimit/envoyrls"
)

// rawRequest is a codec of a client that sends bytes as they are.
type rawRequest struct{}

func (rawRequest) Name() string { return "proto" }

func (rawRequest) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("want bytes")
	}
	return b, nil
}

func (rawRequest) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errors.New("want a message")
	}
	return proto.Unmarshal(data, m)
}

func full() *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{
		Domain:     "d",
		HitsAddend: 7,
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "a", Value: "1"}, {Key: "b"}, {}}},
			{},
			{HitsAddend: wrapperspb.UInt64(0), IsNegativeHits: true},
			{
				HitsAddend: wrapperspb.UInt64(1<<64 - 1),
				Limit: &ratelimitcommon.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 1<<32 - 1, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(3),
				},
			},
		},
	}
}

// FuzzUnmarshal compares what is read off the wire by hand with what the generated code reads.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range []*ratelimitv3.RateLimitRequest{full(), {}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte("\x12\x00\x12\x02\x0a\x00"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := envoyrls.Unmarshal(b)
		m := new(ratelimitv3.RateLimitRequest)
		if proto.Unmarshal(b, m) != nil {
			return // the generated code refuses more: text that is not UTF-8
		}
		if err != nil {
			t.Fatalf("%v for %v", err, m)
		}
		if diff := cmp.Diff(envoyrls.FromProto(m), got); diff != "" {
			t.Errorf("%v\n(-generated +by hand)\n%s", m, diff)
		}
	})
}

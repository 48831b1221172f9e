package rls_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/wire"
)

// rawRequest is a client codec that sends bytes unchanged.
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

// FuzzUnmarshal compares the values and errors of unmarshal with those of the library, for any bytes. The memory of
// the query is that of the query before.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range []*ratelimitv3.RateLimitRequest{full(), {}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(b, b...)) // fields twice: messages are not merged in lists
	}
	for _, message := range map[string]string{
		"two empty descriptors":                  "\x12\x00\x12\x02\x0a\x00",
		"a tag without a field":                  "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"texts that are not UTF-8":               "\x0a\x02\xff\xfe\x12\x08\x0a\x06\x0a\x01\x80\x12\x01\xc0",
		"groups in place of fields":              "\x13\x0a\x01d\x14\x12\x00\x1b\x23\x24\x1c\x18\x07",
		"a group that another one ends":          "\x12\x02\x0b\x0c\x12\x02\x0b\x14",
		"hits of 64 bits":                        "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"hits of 65 bits":                        "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"a unit of 33 bits, read as 1":           "\x12\x08\x12\x06\x10\x81\x80\x80\x80\x10",
		"a negative unit":                        "\x12\x0d\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a multiplier, then one without a value": "\x12\x0a\x12\x04\x1a\x02\x08\x03\x12\x02\x1a\x00",
		"hits, then some without a value":        "\x12\x08\x1a\x02\x08\x05\x1a\x02\x10\x01",
		"negative by its highest bit":            "\x12\x0b\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
		"field 2^29":                             "\x82\x80\x80\x80\x10\x00",
		"field 2^32 - 1":                         "\xfa\xff\xff\xff\x0f\x00",
		"field 0":                                "\x02\x00",
		"a text of length 0 in two bytes":        "\x0a\x80\x00",
	} {
		f.Add([]byte(message))
	}
	twin := newTwin(f)
	memory := new(rls.Memory)
	f.Fuzz(func(t *testing.T, b []byte) {
		var got ratelimit.Query
		memory.Reset()
		err := memory.Unmarshal(string(b), &got)
		m, malformed := twin(b)
		if malformed != nil {
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.Internal && e.Code != wire.InvalidArgument {
				t.Fatalf("got error %v for a malformed message: %v", err, malformed)
			}
			return
		}
		if byLibrary := new(ratelimitv3.RateLimitRequest); proto.Unmarshal(b, byLibrary) == nil {
			m = byLibrary // its texts are UTF-8
		}
		want, refused := fromProto(m)
		if refused != nil {
			if err == nil || err.Error() != refused.Error() {
				t.Fatalf("got error %v, want %v", err, refused)
			}
			return
		}
		if err != nil {
			t.Fatalf("%v for %v", err, m)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%v\n(-library +by hand)\n%s", m, diff)
		}
	})
}

// fromProto returns the query of a message that the generated code has read, and the bound that it exceeds.
func fromProto(m *ratelimitv3.RateLimitRequest) (ratelimit.Query, error) {
	q := ratelimit.Query{Domain: m.GetDomain(), Hits: uint64(m.GetHitsAddend())}
	if len(m.GetDescriptors()) > 64 {
		return q, errors.New("a request has at most 64 descriptors")
	}
	for i, d := range m.GetDescriptors() {
		if len(d.GetEntries()) > 16 {
			return q, fmt.Errorf("descriptor %d: a descriptor has at most 16 entries", i)
		}
		one := descriptors.Descriptor{Negative: d.GetIsNegativeHits()}
		for _, e := range d.GetEntries() {
			one.Entries = append(one.Entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if hits := d.GetHitsAddend(); hits != nil {
			one.Hits = &hits.Value
		}
		if l := d.GetLimit(); l != nil {
			one.Limit = &descriptors.RequestLimit{
				RequestsPerUnit: l.GetRequestsPerUnit(), UnitMultiplier: l.GetUnitMultiplier().GetValue(),
			}
			if unit := uint64(l.GetUnit()); unit <= uint64(descriptors.Week) {
				one.Limit.Unit = descriptors.Unit(unit)
			}
		}
		q.Descriptors = append(q.Descriptors, one)
	}
	return q, nil
}

// FuzzShouldRateLimit checks that every readable request with a domain and descriptors, but without a limit, is
// decided, and that its answer can be sent.
func FuzzShouldRateLimit(f *testing.F) {
	b, err := proto.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("\x0a\x01d\x12\x0b\x0a\x09\x0a\x01k\x12\x04a\xff\xfe\x00"))
	huge := &ratelimitv3.RateLimitRequest{Domain: "d"} // the same bucket twice, the second time with 5e9 hits
	for _, hits := range []*wrapperspb.UInt64Value{nil, wrapperspb.UInt64(5_000_000_000)} {
		huge.Descriptors = append(huge.Descriptors, &ratelimitcommon.RateLimitDescriptor{
			Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "w"}}, HitsAddend: hits,
		})
	}
	if b, err = proto.Marshal(huge); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	const rules = `
domain: d
descriptors:
  - {key: k, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 5}, metadata: {a: {b: 1}}}
  - key: a
    value: "*"
    rate_limit: {unit: day, requests_per_unit: 5, algorithm: sliding_window_log}
    descriptors: [{key: b, rate_limit: {unlimited: true}}]
  - {key: w, rate_limit: {unit: day, requests_per_unit: 5, algorithm: fixed_window}}
`
	flows := []*flow.Flow{
		newFlow(f, rules, []string{"draft,triple,x", "body", "metadata"}),
		newFlow(f, rules, []string{"triple", "metadata", "strict"}),
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := rls.Unmarshal(string(b))
		if err != nil {
			return
		}
		decided := q.Domain != "" && len(q.Descriptors) > 0
		for _, d := range q.Descriptors {
			decided = decided && d.Limit == nil
		}
		for i, flowOf := range flows {
			answer, err := flowOf.Answer(t.Context(), flow.RateLimit, string(b), http.Header{})
			if decided && err != nil {
				t.Fatalf("flow %d: %+v: %v", i, q, err)
			}
			if err == nil {
				checkAnswer(t, q, answer)
			}
		}
	})
}

// checkAnswer checks an answer to a query. No limit leaves more than it has.
func checkAnswer(t *testing.T, q ratelimit.Query, answer []byte) {
	t.Helper()
	res := new(ratelimitv3.RateLimitResponse)
	if err := proto.Unmarshal(answer, res); err != nil {
		t.Errorf("%+v: %v", q, err)
	}
	if len(res.GetStatuses()) != len(q.Descriptors) || res.GetOverallCode() == ratelimitv3.RateLimitResponse_UNKNOWN {
		t.Errorf("%+v: %v", q, res)
	}
	for _, s := range res.GetStatuses() {
		if l := s.GetCurrentLimit(); l != nil && s.GetLimitRemaining() > l.GetRequestsPerUnit() {
			t.Errorf("%+v: %v", q, res)
		}
	}
}

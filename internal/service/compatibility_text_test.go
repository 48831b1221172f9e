package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/wire"
)

// comparedRequest is a request with its answers, by mode.
type comparedRequest struct {
	line    string
	after   time.Duration
	request *ratelimitv3.RateLimitRequest
	want    map[string]string
}

// parseRequests reads the requests of a file and their answers.
func parseRequests(t *testing.T, text string) (list []comparedRequest) {
	t.Helper()
	for line := range strings.Lines(strings.NewReplacer("\n ", " ").Replace(text)) {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		ask, answer, ok := strings.Cut(line, "=>")
		ask, answer = strings.TrimSpace(ask), strings.Join(strings.Fields(answer), " ")
		switch {
		case !ok:
			t.Fatalf("no => in %q", line)
		case ask == "normal":
			list[len(list)-1].want["default"] = answer
			continue
		}
		at, ask, _ := strings.Cut(ask, " ")
		after, err := time.ParseDuration(at)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, comparedRequest{
			line: line, after: after, request: parseRequest(t, ask),
			want: map[string]string{"strict": answer, "default": answer},
		})
	}
	return list
}

func parseRequest(t *testing.T, text string) *ratelimitv3.RateLimitRequest {
	t.Helper()
	request := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for part := range strings.SplitSeq(text, "|") {
		d := new(ratelimitcommon.RateLimitDescriptor)
		for word := range strings.FieldsSeq(part) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "domain":
				request.Domain = value
			case "request_hits":
				request.HitsAddend = uint32(number(value))
			case "hits":
				d.HitsAddend = wrapperspb.UInt64(number(value))
			case "refund":
				d.IsNegativeHits = true
			case "limit":
				requests, unit, _ := strings.Cut(value, "/")
				unit, multiplier, several := strings.Cut(unit, "*")
				d.Limit = &ratelimitcommon.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(number(requests)),
					Unit:            typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(unit)]),
				}
				if several {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(number(multiplier)))
				}
			case "-":
			case "nothing":
				return request
			default:
				for entry := range strings.SplitSeq(word, ">") {
					key, value, _ := strings.Cut(entry, "=")
					d.Entries = append(d.Entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
				}
			}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// describeAnswer returns the answer to a message as text. It has every field.
func describeAnswer(t *testing.T, server *flow.Flow, request string) string {
	t.Helper()
	message, err := server.Answer(t.Context(), flow.RateLimit, request, http.Header{})
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		return fmt.Sprintf("error %d: %s", refused.Code, refused.Reason)
	}
	answer := new(ratelimitv3.RateLimitResponse)
	if err == nil {
		err = proto.Unmarshal(message, answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := answer.GetOverallCode().String()
	for i, s := range answer.GetStatuses() {
		text += map[bool]string{true: " : ", false: " | "}[i == 0] + describeStatus(s)
	}
	for i, h := range answer.GetResponseHeadersToAdd() {
		text += map[bool]string{true: " ; ", false: ", "}[i == 0] + h.GetKey() + ": " + h.GetValue()
	}
	if m := answer.GetDynamicMetadata(); m != nil {
		content, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer // protojson adds spaces in some builds, on purpose
		if err := json.Compact(&compact, content); err != nil {
			t.Fatal(err)
		}
		text += " ; " + compact.String()
	}
	for i, h := range answer.GetRequestHeadersToAdd() {
		text += map[bool]string{true: " ; upstream ", false: ", "}[i == 0] + h.GetKey() + ": " + h.GetValue()
	}
	if len(answer.GetRawBody()) > 0 {
		text += fmt.Sprintf(" ; body %q", answer.GetRawBody())
	}
	return text
}

func describeStatus(s *ratelimitv3.RateLimitResponse_DescriptorStatus) string {
	code := map[ratelimitv3.RateLimitResponse_Code]string{
		ratelimitv3.RateLimitResponse_OK: "ok", ratelimitv3.RateLimitResponse_OVER_LIMIT: "over",
	}[s.GetCode()]
	l := s.GetCurrentLimit()
	switch {
	case l == nil && s.GetLimitRemaining() == math.MaxUint32:
		return code + " unlimited"
	case l == nil:
		return code
	}
	text := fmt.Sprintf("%s %d of %d/%s", code, s.GetLimitRemaining(), l.GetRequestsPerUnit(),
		strings.ToLower(l.GetUnit().String()))
	if l.GetUnitMultiplier() != nil {
		text += fmt.Sprintf("*%d", l.GetUnitMultiplier().GetValue())
	}
	if l.GetName() != "" {
		text += " " + l.GetName()
	}
	return fmt.Sprintf("%s %ds", text, s.GetDurationUntilReset().GetSeconds())
}

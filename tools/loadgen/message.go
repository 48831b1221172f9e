package loadgen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Placeholder is the text of a request that becomes the key, as 8 digits.
const Placeholder = "{key}"

// marker takes the place of Placeholder while a request is encoded. It has as many bytes as the digits of a key, so
// lengths stay right, and zero bytes, which no argument of a command can contain.
const marker = "\x00" + Placeholder + "\x00\x00"

// prefix is the length of what gRPC puts before a message: a flag and the length of the message.
const prefix = 5

// Message is a request that is encoded once. Requests differ only in the digits of their key.
type Message struct {
	// path is the method of gRPC.
	path   string
	bytes  []byte // with gRPC's prefix
	places []int  // where the digits begin
	allows func(answer []byte) (bool, error)
	// warns returns why a measurement with this answer says little, or "". nil means no such answer is known.
	warns func(answer []byte) string
	// keyHeader is the header with the key of a request without gRPC, whose answer is its status. "" means gRPC.
	keyHeader string
}

// Get returns a GET request, as a client of Envoy sends it. The value of the header is the key. Status 200 is an
// allowed request, 429 a denied one, and all others are errors.
func Get(path, keyHeader string) Message { return Message{path: path, keyHeader: keyHeader} }

// HasKey reports whether the message contains Placeholder.
func (m *Message) HasKey() bool { return len(m.places) > 0 }

// RateLimit returns a call of ShouldRateLimit. Values of descriptors may contain Placeholder.
func RateLimit(domain string, descriptors []*descriptorv3.RateLimitDescriptor) (Message, error) {
	req := &rlsv3.RateLimitRequest{Domain: domain}
	for _, d := range descriptors {
		marked := &descriptorv3.RateLimitDescriptor{}
		for _, e := range d.GetEntries() {
			entry := &descriptorv3.RateLimitDescriptor_Entry{Key: e.GetKey(), Value: mark(e.GetValue())}
			marked.Entries = append(marked.Entries, entry)
		}
		req.Descriptors = append(req.Descriptors, marked)
	}
	m, err := encode("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", req, withinLimit)
	m.warns = warnsOfRateLimit
	return m, err
}

// HTTPRequest is the request that Envoy asks ext_authz about. Path and values of headers may contain Placeholder.
type HTTPRequest struct {
	Method, Host, Path string
	Headers            map[string]string
}

// Check returns a call of Check for the request of a browser, with some 20 headers.
func Check(r HTTPRequest) (Message, error) {
	headers := map[string]string{
		":authority": r.Host, ":method": r.Method, ":path": mark(r.Path), ":scheme": "https",
		"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "accept-encoding": "gzip, deflate, br",
		"accept-language": "en-US,en;q=0.5", "cache-control": "no-cache", "dnt": "1",
		"referer":        "https://shop.example/v1/users",
		"sec-fetch-dest": "document", "sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin",
		"user-agent":      "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https", "x-request-id": "5b0e0b0e-5b0e-4b0e-8b0e-5b0e0b0e5b0e",
		"cookie": "session=0123456789abcdef0123456789abcdef; theme=dark",
	}
	for name, value := range r.Headers {
		headers[strings.ToLower(name)] = mark(value)
	}
	m, err := encode("/envoy.service.auth.v3.Authorization/Check",
		&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: "192.0.2.1"},
			}}},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Id: "1", Method: r.Method, Host: r.Host, Path: mark(r.Path), Scheme: "https", Protocol: "HTTP/2", Headers: headers,
			}},
		}}, allowedByCheck)
	m.warns = warnsOfCheck
	return m, err
}

func mark(text string) string { return strings.ReplaceAll(text, Placeholder, marker) }

func encode(path string, req proto.Message, allows func([]byte) (bool, error)) (Message, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return Message{}, fmt.Errorf("encode the request: %w", err)
	}
	m := Message{path: path, bytes: append(make([]byte, prefix), body...), allows: allows}
	binary.BigEndian.PutUint32(m.bytes[1:], uint32(len(body)))
	for at := prefix; ; at += keyDigits {
		i := bytes.Index(m.bytes[at:], []byte(marker))
		if i < 0 {
			return m, nil
		}
		at += i
		m.places = append(m.places, at)
		putKey(m.bytes[at:], 0)
	}
}

// withinLimit reads the overall code of a RateLimitResponse.
func withinLimit(answer []byte) (bool, error) {
	code, err := number(answer)
	switch rlsv3.RateLimitResponse_Code(code) {
	case rlsv3.RateLimitResponse_OK:
		return true, err
	case rlsv3.RateLimitResponse_OVER_LIMIT:
		return false, err
	}
	return false, errors.Join(err, fmt.Errorf("the answer has the overall code %d", code))
}

// allowedByCheck reads the status of a CheckResponse. Envoy takes an answer without one for an OK.
func allowedByCheck(answer []byte) (bool, error) {
	value, err := first(answer, protowire.BytesType)
	if err != nil {
		return false, err
	}
	status, _ := protowire.ConsumeBytes(value) // nil without a value
	code, err := number(status)
	return code == 0, err
}

// number returns the value of field 1 of a message, a number, and 0 if it is missing.
func number(message []byte) (uint64, error) {
	value, err := first(message, protowire.VarintType)
	n, _ := protowire.ConsumeVarint(value) // 0 without a value
	return n, err
}

// first returns the first value of field 1 of a message that has a type, nil if it is missing.
func first(message []byte, typ protowire.Type) ([]byte, error) {
	for len(message) > 0 {
		field, got, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, fmt.Errorf("the answer is no message: %w", protowire.ParseError(size))
		}
		if field == 1 && got == typ {
			return message[protowire.SizeTag(field):size], nil
		}
		message = message[size:]
	}
	return nil, nil //nolint:nilnil // nil is a field that is missing
}

package auth

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/wire"
)

// Message is an envoy.service.auth.v3.CheckRequest read from the wire. It can be used again, for its memory.
type Message struct {
	Request  authz.Request
	metadata requestMetadata
	// peerKind is the tag of the peer's address that was read last: the kinds of address are a oneof.
	peerKind uint64
}

// Fields of envoy.service.auth.v3.CheckRequest, and of the messages in it, as tags on the wire.
const (
	checkAttributes = 1<<3 | wire.Bytes

	attributesSource     = 1<<3 | wire.Bytes
	attributesRequest    = 4<<3 | wire.Bytes
	attributesExtensions = 10<<3 | wire.Bytes
	attributesMetadata   = 11<<3 | wire.Bytes

	peerAddress   = 1<<3 | wire.Bytes
	peerPrincipal = 4<<3 | wire.Bytes

	addressSocket   = 1<<3 | wire.Bytes
	addressPipe     = 2<<3 | wire.Bytes
	addressInternal = 3<<3 | wire.Bytes
	socketAddress   = 2<<3 | wire.Bytes
	pipePath        = 1<<3 | wire.Bytes

	requestHTTP = 2<<3 | wire.Bytes

	httpMethod    = 2<<3 | wire.Bytes
	httpHeaders   = 3<<3 | wire.Bytes
	httpPath      = 4<<3 | wire.Bytes
	httpHost      = 5<<3 | wire.Bytes
	httpHeaderMap = 13<<3 | wire.Bytes

	headerMapHeaders = 1<<3 | wire.Bytes
	headerKey        = 1<<3 | wire.Bytes
	headerValue      = 2<<3 | wire.Bytes
	headerRawValue   = 3<<3 | wire.Bytes

	metadataFilters = 1<<3 | wire.Bytes
	filterFields    = 2<<3 | wire.Bytes
)

// mostExtensions is the size of the largest map that is kept for the next request. Envoy's configuration sets a few.
const mostExtensions = 16

// Reset drops the request, with all texts of its message.
func (m *Message) Reset() {
	extensions := m.Request.Extensions
	if len(extensions) > mostExtensions {
		extensions = nil
	}
	clear(extensions)
	*m = Message{Request: authz.Request{Headers: texts.Clear(m.Request.Headers), Extensions: extensions}}
}

// Unmarshal reads a message, after new or Reset. The texts of the request are parts of the message. Only a malformed
// message is an error, because a filter with failure_mode_allow allows a request if the call fails.
func (m *Message) Unmarshal(msg string) error {
	m.metadata.message = msg
	return wire.Each(msg, checkAttributes, m.attributes)
}

func (m *Message) attributes(msg string) error {
	r := wire.Read(msg)
	for r.Next() {
		var err error
		switch r.Tag {
		case attributesSource:
			err = m.source(r.Text)
		case attributesRequest:
			err = wire.Each(r.Text, requestHTTP, m.http)
		case attributesExtensions:
			err = m.extension(r.Text)
		case attributesMetadata:
			m.Request.Metadata = &m.metadata
		}
		if err != nil {
			return fmt.Errorf("attribute %d: %w", r.Tag>>3, err)
		}
	}
	return r.Err()
}

func (m *Message) source(msg string) error {
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case peerAddress:
			if err := m.address(r.Text); err != nil {
				return err
			}
		case peerPrincipal:
			m.Request.Principal = r.Text
		}
	}
	return r.Err()
}

// address reads a core.v3.Address: the address of a socket, or the path of a pipe for clients on a Unix socket.
func (m *Message) address(msg string) error {
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case addressSocket, addressPipe, addressInternal:
		default:
			continue
		}
		if r.Tag != m.peerKind {
			m.peerKind, m.Request.Source = r.Tag, ""
		}
		inner := wire.Read(r.Text)
		for inner.Next() {
			if r.Tag == addressSocket && inner.Tag == socketAddress || r.Tag == addressPipe && inner.Tag == pipePath {
				m.Request.Source = inner.Text
			}
		}
		if err := inner.Err(); err != nil {
			return err
		}
	}
	return r.Err()
}

func (m *Message) http(msg string) error {
	m.Request.HTTP = true
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case httpMethod:
			m.Request.Method = r.Text
		case httpPath:
			m.Request.Path = r.Text
		case httpHost:
			m.Request.Host = r.Text
		case httpHeaders:
			key, value, err := wire.ReadEntry(r.Text)
			if err != nil {
				return err
			}
			m.addHeader(key, value)
		case httpHeaderMap: // sent instead of headers with encode_raw_headers
			if err := wire.Each(r.Text, headerMapHeaders, m.rawHeader); err != nil {
				return err
			}
		}
	}
	return r.Err()
}

// rawHeader reads a core.v3.HeaderValue. Envoy may send the value as raw_value.
func (m *Message) rawHeader(msg string) error {
	var key, value, raw string
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case headerKey:
			key = r.Text
		case headerValue:
			value = r.Text
		case headerRawValue:
			raw = r.Text
		}
	}
	m.addHeader(key, cmp.Or(raw, value))
	return r.Err()
}

func (m *Message) addHeader(name, value string) {
	if !isLower(name) { // never from Envoy; ToLower takes twice as long
		name = strings.ToLower(name)
	}
	m.Request.AddHeader(name, value)
}

// isLower reports whether a text consists of ASCII without upper-case letters.
func isLower(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x80 || c-'A' < 26 {
			return false
		}
	}
	return true
}

func (m *Message) extension(msg string) error {
	key, value, err := wire.ReadEntry(msg)
	if err == nil {
		m.Request.AddExtension(key, value)
	}
	return err
}

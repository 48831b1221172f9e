package auth

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// checkRequest is an envoy.service.auth.v3.CheckRequest read from the wire.
type checkRequest struct {
	request authz.Request
	// peerKind is the tag of the peer's address that was read last: the kinds of address are a oneof.
	peerKind uint64
	// values is the array for the values of headers, most of which have one value.
	values []string
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

	entryKey   = 1<<3 | wire.Bytes
	entryValue = 2<<3 | wire.Bytes
)

// usualHeaders is about the number of headers in a request.
const usualHeaders = 16

// unmarshal reads the message; the request keeps parts of it. It returns an error only for a malformed protobuf
// message. No content is an error, because a filter with failure_mode_allow allows a request if the call fails.
func (c *checkRequest) unmarshal(msg string) error {
	return wire.EachField(msg, func(f wire.Field) error {
		if f.Tag != checkAttributes {
			return nil
		}
		return wire.EachField(f.Text, c.attribute)
	})
}

func (c *checkRequest) attribute(f wire.Field) (err error) {
	switch f.Tag {
	case attributesSource:
		err = wire.EachField(f.Text, c.source)
	case attributesRequest:
		err = wire.EachField(f.Text, func(f wire.Field) error {
			if f.Tag != requestHTTP {
				return nil
			}
			c.request.HTTP = true
			return wire.EachField(f.Text, c.http)
		})
	case attributesExtensions:
		if c.request.Extensions == nil {
			c.request.Extensions = make(map[string]string)
		}
		var key, value string
		key, value, err = wire.ReadEntry(f.Text)
		c.request.Extensions[key] = value
	case attributesMetadata:
		err = wire.EachField(f.Text, c.metadata)
	}
	if err != nil {
		return fmt.Errorf("attribute %d: %w", f.Tag>>3, err)
	}
	return nil
}

func (c *checkRequest) source(f wire.Field) error {
	switch f.Tag {
	case peerAddress:
		return wire.EachField(f.Text, c.address)
	case peerPrincipal:
		c.request.Principal = f.Text
	}
	return nil
}

// address reads a core.v3.Address: the address of a socket, or the path of a pipe for clients on a Unix socket.
func (c *checkRequest) address(f wire.Field) error {
	switch f.Tag {
	case addressSocket, addressPipe, addressInternal:
	default:
		return nil
	}
	if f.Tag != c.peerKind {
		c.peerKind, c.request.Source = f.Tag, ""
	}
	return wire.EachField(f.Text, func(inner wire.Field) error {
		if f.Tag == addressSocket && inner.Tag == socketAddress || f.Tag == addressPipe && inner.Tag == pipePath {
			c.request.Source = inner.Text
		}
		return nil
	})
}

func (c *checkRequest) http(f wire.Field) error {
	switch f.Tag {
	case httpMethod:
		c.request.Method = f.Text
	case httpPath:
		c.request.Path = f.Text
	case httpHost:
		c.request.Host = f.Text
	case httpHeaders:
		key, value, err := wire.ReadEntry(f.Text)
		c.addHeader(key, value)
		return err
	case httpHeaderMap: // sent instead of headers with encode_raw_headers
		return wire.EachField(f.Text, func(f wire.Field) error {
			if f.Tag != headerMapHeaders {
				return nil
			}
			return c.rawHeader(f.Text)
		})
	}
	return nil
}

// rawHeader reads a core.v3.HeaderValue. Envoy may send the value as raw_value.
func (c *checkRequest) rawHeader(msg string) error {
	var key, value, raw string
	err := wire.EachField(msg, func(f wire.Field) error {
		switch f.Tag {
		case headerKey:
			key = f.Text
		case headerValue:
			value = f.Text
		case headerRawValue:
			raw = f.Text
		}
		return nil
	})
	c.addHeader(key, cmp.Or(raw, value))
	return err
}

// addHeader keeps all values of a name, so that a repeated credential is detected.
func (c *checkRequest) addHeader(name, value string) {
	if c.request.Headers == nil {
		c.request.Headers = make(authz.Headers, usualHeaders)
	}
	name = strings.ToLower(name)
	if values, ok := c.request.Headers[name]; ok {
		c.request.Headers[name] = append(values, value)
		return
	}
	if len(c.values) == cap(c.values) {
		c.values = make([]string, 0, usualHeaders)
	}
	c.values = append(c.values, value)
	n := len(c.values)
	c.request.Headers[name] = c.values[n-1 : n : n]
}

// metadata reads a core.v3.Metadata.
func (c *checkRequest) metadata(f wire.Field) error {
	if f.Tag != metadataFilters {
		return nil
	}
	namespace, fields := "", make(map[string]any)
	err := wire.EachField(f.Text, func(f wire.Field) error {
		switch f.Tag {
		case entryKey:
			namespace = f.Text
		case entryValue:
			return wire.ReadStruct(f.Text, fields)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.request.Metadata == nil {
		c.request.Metadata = make(map[string]map[string]any)
	}
	c.request.Metadata[namespace] = fields
	return nil
}

package h2unary

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

const contentType = "application/grpc"

// Header blocks of answers (RFC 7541). The first answer inserts two fields into the table of the client. After that,
// a block of a success has one byte for each field.
const (
	status200   = "\x88"     // It stands for :status 200.
	status400   = "\x8c"     // It stands for :status 400.
	statusOther = "\x08\x03" // It begins a literal :status. Three digits follow.
	insertType  = "\x5f\x10" + contentType
	knownType   = "\xbf" // It is the second newest field, after both insertions.
	plainType   = "\x0f\x10\x10" + contentType
	plainText   = "\x0f\x10\x0atext/plain"
	insertOK    = "\x40\x0bgrpc-status\x010"
	knownOK     = "\xbe" // It is the newest field.
	plainStatus = "\x00\x0bgrpc-status"
	plainReason = "\x00\x0cgrpc-message"
	accepted    = "\x00\x14grpc-accept-encoding\x0didentity,gzip"
	emptyTable  = "\x20" // It is a size update.
)

// encoding is what the server knows of the client's table.
type encoding uint8

const (
	notInserted encoding = iota
	typeInserted
	bothInserted
	noTable // The client has made its table smaller, or has changed it.
)

// appendHeaderFrame appends HEADERS with the block that block appends, after a size update if the client has changed
// its table since the last block. c.mu is held.
func (c *Conn) appendHeaderFrame(b []byte, stream uint32, flags http2.Flags, block func(b []byte) []byte) []byte {
	begin := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders|flags, stream, 0)
	if c.peer.resized {
		c.peer.resized = false
		b = append(b, emptyTable...)
	}
	b = block(b)
	length := len(b) - begin - frameHeader
	b[begin], b[begin+1], b[begin+2] = byte(length>>16), byte(length>>8), byte(length)
	return b
}

// appendHead appends the HEADERS of a success. c.mu is held.
func (c *Conn) appendHead(b []byte, k *Call) []byte {
	k.begun = true
	return c.appendHeaderFrame(b, k.id, 0, func(b []byte) []byte {
		b = append(b, status200...)
		switch c.peer.encoding {
		case notInserted:
			c.peer.encoding = typeInserted
			return append(b, insertType...)
		case bothInserted:
			return append(b, knownType...)
		}
		return append(b, plainType...)
	})
}

// appendTrailers appends the HEADERS that end a success. c.mu is held.
func (c *Conn) appendTrailers(b []byte, stream uint32) []byte {
	return c.appendHeaderFrame(b, stream, http2.FlagHeadersEndStream, func(b []byte) []byte {
		switch c.peer.encoding {
		case typeInserted:
			c.peer.encoding = bothInserted
			return append(b, insertOK...)
		case bothInserted:
			return append(b, knownOK...)
		}
		return append(append(b, plainStatus...), 1, '0')
	})
}

// appendReply appends a whole answer. c.mu is held.
func (c *Conn) appendReply(k *Call, message []byte) {
	whole := prefix + len(message)
	b := c.appendHead(c.output.next(), k)
	if int64(whole) > min(maxFrame, c.window.send, int64(c.peer.window)+int64(k.window)) {
		c.output.add(b)
		c.appendData(k, appendMessage(make([]byte, 0, whole), message), trailers)
		return
	}
	b = appendMessage(appendFrame(b, http2.FrameData, 0, k.id, whole), message)
	c.window.send -= int64(whole)
	c.output.add(c.appendTrailers(b, k.id))
	c.remove(k)
}

// appendMessage appends a message with its prefix.
func appendMessage(b, message []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(len(message)))
	return append(b, message...)
}

// appendMessage appends one message of a stream. c.mu is held.
func (c *Conn) appendMessage(k *Call, message []byte) {
	if !k.begun {
		c.output.add(c.appendHead(c.output.next(), k))
	}
	c.appendData(k, appendMessage(k.rest.data, message), nothing)
}

// appendFailure appends an error, which ends the call. c.mu is held.
func (c *Conn) appendFailure(k *Call, code codes.Code, reason string) {
	c.appendError(k, status200, code, reason)
}

// appendError appends the HEADERS of an error of gRPC, which end the call. c.mu is held.
func (c *Conn) appendError(k *Call, status string, code codes.Code, reason string) {
	c.output.add(c.appendHeaderFrame(c.output.next(), k.id, http2.FlagHeadersEndStream, func(b []byte) []byte {
		if !k.begun {
			b = append(append(b, status...), plainType...)
		}
		b = appendText(append(b, plainStatus...), strconv.Itoa(int(code)))
		if code == codes.Unimplemented && k.head.fault == badEncoding {
			b = append(b, accepted...)
		}
		if reason == "" {
			return b
		}
		return appendText(append(b, plainReason...), encodeReason(reason))
	}))
	c.remove(k)
}

// appendText appends a text without Huffman coding.
func appendText(b []byte, text string) []byte {
	const most = 1<<stringBits - 1
	n := len(text)
	if n < most {
		return append(append(b, byte(n)), text...)
	}
	b = binary.AppendUvarint(append(b, most), uint64(n-most))
	return append(b, text...)
}

// maxReason bounds the text of an error, so that its HEADERS fit into one frame.
const maxReason = 1 << 10

// encodeReason encodes a grpc-message. It writes bytes that are not printable ASCII as %XX.
func encodeReason(reason string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(reason))
	for i := 0; i < len(reason) && len(out) < maxReason; i++ {
		if c := reason[i]; c >= ' ' && c <= '~' && c != '%' {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

const unknownText = "unknown service or method"

// answerFault answers a request that is not passed to Serve. c.mu is held.
func (c *Conn) answerFault(k *Call) {
	switch k.head.fault {
	case notPost:
		c.appendPage(k, "405", "This server speaks gRPC: want POST.\n")
	case notGRPC:
		c.appendPage(k, "415", "This server speaks gRPC: want the content-type application/grpc.\n")
	case twoHosts, noAuthority:
		c.appendError(k, status400, codes.Internal, "want one :authority or one host header")
	case badTimeout:
		c.appendError(k, status400, codes.Internal, "malformed grpc-timeout")
	case timedOut:
		c.appendFailure(k, codes.DeadlineExceeded, "the timeout of the request is 0")
	case badEncoding:
		c.appendFailure(k, codes.Unimplemented, "unknown compression: want gzip or none")
	default:
		c.appendFailure(k, codes.Unimplemented, unknownText)
	}
}

// appendPage answers a client that does not speak gRPC.
func (c *Conn) appendPage(k *Call, status, text string) {
	c.output.add(c.appendHeaderFrame(c.output.next(), k.id, 0, func(b []byte) []byte {
		return append(append(append(b, statusOther...), status...), plainText...)
	}))
	k.begun = true
	c.appendData(k, []byte(text), endData)
}

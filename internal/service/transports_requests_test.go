package service

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// Rows of docs/reference/settings.md that several requests share.
const (
	gzipRow       = "a compressed message (`grpc-encoding: gzip`) of more than 64 KiB, and 16 times what arrived"
	pseudoRow     = "no `:method`, `:scheme` or `:path`, or an empty `:path`"
	connectionRow = "`te` other than `trailers`; `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade`"
	lengthRow     = "a `content-length` that is wrong"
	controlRow    = "control characters other than NUL, CR and LF in the value of a header"
	brokenRow     = "frames that break HTTP/2"
)

// exactLength is the length of the content of a usual request.
var exactLength = strconv.Itoa(len(framed(0, usualMessage)))

// unusualHeaders are requests with other headers of gRPC than usual.
func unusualHeaders() []unusual {
	return []unusual{
		{name: "a usual request", want: allowed},
		{name: "content-type application/grpc+proto", headers: replaced("content-type", "application/grpc+proto"),
			want: allowed},
		{name: "content-type application/grpc+json", headers: replaced("content-type", "application/grpc+json"),
			want: allowed},
		{name: "content-type with a parameter", headers: replaced("content-type", "application/grpc;charset=utf-8"),
			want: allowed},
		{name: "content-type in upper case", headers: replaced("content-type", "Application/GRPC"), want: refusedType},
		{name: "content-type application/grpc-web", headers: replaced("content-type", "application/grpc-web"),
			want: refusedType},
		{name: "content-type application/grpcx", headers: replaced("content-type", "application/grpcx"),
			want: refusedType},
		{name: "content-type application/json", headers: replaced("content-type", "application/json"), want: refusedType},
		{name: "an empty content-type", headers: replaced("content-type", ""), want: refusedType},
		{name: "no content-type", headers: without("content-type"), want: refusedType},
		{name: "content-type twice, the last one of gRPC", want: allowed,
			headers: without("content-type", "content-type", "text/plain", "content-type", "application/grpc")},
		{name: "content-type twice, the first one of gRPC", want: allowed, headers: with("content-type", "text/plain")},

		{name: "no te", headers: without("te"), want: allowed},
		{name: "te gzip", headers: replaced("te", "gzip"), want: resetBroken, grpcGo: allowed, row: connectionRow},
		{name: "te trailers, gzip", headers: replaced("te", "trailers, gzip"), want: resetBroken, grpcGo: allowed,
			row: connectionRow},
		{name: "te in upper case", headers: replaced("te", "Trailers"), want: resetBroken, grpcGo: allowed,
			row: connectionRow},

		{name: "method GET", headers: replaced(":method", "GET"), want: refusedPost},
		{name: "method PUT, and no content-type", headers: func(h *requestHeaders) {
			h.set(":method", "PUT")
			h.remove("content-type")
		}, want: refusedType},
		{name: "no method", headers: without(":method"), want: resetBroken, grpcGo: refusedPost, row: pseudoRow},
		{name: "no scheme", headers: without(":scheme"), want: resetBroken, grpcGo: allowed, row: pseudoRow},
		{name: "scheme https", headers: replaced(":scheme", "https"), want: allowed},
		{name: "an unknown scheme", headers: replaced(":scheme", "x"), want: allowed},

		{name: "no authority", headers: without(":authority"), want: brokenHeader},
		{name: "an empty authority", headers: replaced(":authority", ""), want: allowed},
		{name: "host in place of authority", headers: without(":authority", "host", "test"), want: allowed},
		{name: "authority and another host", headers: with("host", "other"), want: allowed},
		{name: "two hosts", headers: with("host", "a", "host", "a"), want: brokenHeader},
		{name: "two hosts, and no content-type", headers: without("content-type", "host", "a", "host", "b"),
			want: brokenHeader},

		{name: "grpc-timeout 20S", headers: with("grpc-timeout", "20S"), want: allowed},
		{name: "grpc-timeout 0m", headers: with("grpc-timeout", "0m"), want: "status 4"},
		{name: "grpc-timeout 00000000H", headers: with("grpc-timeout", "00000000H"), want: "status 4"},
		{name: "grpc-timeout 99999999H", headers: with("grpc-timeout", "99999999H"), want: allowed},
		{name: "grpc-timeout of 9 digits", headers: with("grpc-timeout", "123456789S"), want: brokenHeader},
		{name: "an empty grpc-timeout", headers: with("grpc-timeout", ""), want: brokenHeader},
		{name: "grpc-timeout without a unit", headers: with("grpc-timeout", "5"), want: brokenHeader},
		{name: "grpc-timeout without digits", headers: with("grpc-timeout", "m"), want: brokenHeader},
		{name: "grpc-timeout with a sign", headers: with("grpc-timeout", "-1m"), want: brokenHeader},
		{name: "grpc-timeout with a plus", headers: with("grpc-timeout", "+1m"), want: brokenHeader},
		{name: "grpc-timeout with a fraction", headers: with("grpc-timeout", "1.5S"), want: brokenHeader},
		{name: "grpc-timeout of an unknown unit", headers: with("grpc-timeout", "1x"), want: brokenHeader},
		{name: "grpc-timeout twice", headers: with("grpc-timeout", "0m", "grpc-timeout", "20S"), want: allowed},
		{name: "a broken grpc-timeout before a good one", want: brokenHeader,
			headers: with("grpc-timeout", "x", "grpc-timeout", "20S")},
		{name: "a broken grpc-timeout of an unknown method", want: brokenHeader, headers: func(h *requestHeaders) {
			h.set(":path", "/none")
			h.add("grpc-timeout", "x")
		}},
		{name: "a broken grpc-timeout, and no authority", headers: without(":authority", "grpc-timeout", "x"),
			want: brokenHeader},

		{name: "grpc-encoding identity", headers: with("grpc-encoding", "identity"), want: allowed},
		{name: "an empty grpc-encoding", headers: with("grpc-encoding", ""), want: allowed},
		{name: "an unknown grpc-encoding", headers: with("grpc-encoding", "x"), want: unknownCall},
		{name: "grpc-encoding gzip of a message that is not compressed", headers: with("grpc-encoding", "gzip"),
			want: allowed},
		{name: "a message compressed by gzip", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, zipped(usualMessage))}, want: allowed},
		{name: "a message in two members of gzip", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, append(zipped(usualMessage[:4]), zipped(usualMessage[4:])...))}, want: allowed},
		{name: "a compressed message without content", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, nil)}, want: brokenCall},
		{name: "a message that is no gzip", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, usualMessage)}, want: brokenCall},
		{name: "a compressed message that is cut off", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, zipped(usualMessage)[:20])}, want: brokenCall},
		{name: "a compressed message with a wrong checksum", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, append(zipped(usualMessage)[:len(zipped(usualMessage))-8], make([]byte, 8)...))},
			want: brokenCall},
		{name: "a compressed message that is malformed", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, zipped([]byte{0xff}))}, want: brokenCall},
		{name: "a compressed message beyond 1 MiB", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, zipped(make([]byte, 2<<20)))}, want: "status 8"},
		{name: "a compressed message beyond 64 KiB, and 16 times its size", headers: with("grpc-encoding", "gzip"),
			body: [][]byte{framed(1, zipped(append(usualMessage, unknownField(100<<10)...)))},
			want: "status 8", grpcGo: allowed, row: gzipRow},
		{name: "grpc-encoding in upper case", headers: with("grpc-encoding", "GZIP"), want: unknownCall},
		{name: "grpc-encoding gzip, then identity", headers: with("grpc-encoding", "gzip", "grpc-encoding", "identity"),
			body: [][]byte{framed(1, zipped(usualMessage))}, want: brokenCall},
		{name: "grpc-accept-encoding gzip", headers: with("grpc-accept-encoding", "gzip"), want: allowed},
	}
}

func zipped(message []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(message) // to memory
	_ = w.Close()
	return b.Bytes()
}

// unusualFields are requests with odd header fields.
func unusualFields() []unusual {
	return []unusual{
		{name: "the right content-length", want: allowed, headers: with("content-length", exactLength)},
		{name: "a wrong content-length", headers: with("content-length", "1"), want: resetBroken, grpcGo: allowed,
			row: lengthRow},
		{name: "a content-length that is no number", headers: with("content-length", "x"), want: resetBroken,
			grpcGo: allowed, row: lengthRow},
		{name: "two values of content-length", headers: with("content-length", exactLength, "content-length", "1"),
			want: resetBroken, grpcGo: allowed, row: lengthRow},
		{name: "a header in upper case", headers: with("X-A", "b"), want: resetBroken},
		{name: "a header name with a space", headers: with("a b", "c"), want: resetBroken},
		{name: "an empty header name", headers: with("", "c"), want: resetBroken},
		{name: "a header value with a line break", headers: with("a", "b\r\nc"), want: resetBroken},
		{name: "a header value with a control character", headers: with("a", "b\x01c"), want: allowed,
			grpcGo: resetBroken, row: controlRow},
		{name: "a header value that is not ASCII", headers: with("a", "ü"), want: allowed},
		{name: "a header value with spaces around it", headers: with("a", " b "), want: allowed},
		{name: "a header with the name connection", headers: with("connection", "close"), want: resetBroken},
		{name: "a header with the name keep-alive", headers: with("keep-alive", "1"), want: resetBroken,
			grpcGo: allowed, row: connectionRow},
		{name: "a header with the name proxy-connection", headers: with("proxy-connection", "1"), want: resetBroken,
			grpcGo: allowed, row: connectionRow},
		{name: "a header with the name transfer-encoding", headers: with("transfer-encoding", "chunked"),
			want: resetBroken, grpcGo: allowed, row: connectionRow},
		{name: "a header with the name upgrade", headers: with("upgrade", "h2c"), want: resetBroken, grpcGo: allowed,
			row: connectionRow},
		{name: "a pseudo-header after others", headers: without(":authority", ":authority", "test"), want: resetBroken},
		{name: "an unknown pseudo-header", want: resetBroken, headers: func(h *requestHeaders) {
			first := usualHeaders("").fields[:1]
			first[0].Name = ":a"
			h.fields = slices.Concat(first, h.fields)
		}},
		{name: "a pseudo-header twice", want: resetBroken, headers: func(h *requestHeaders) {
			h.fields = slices.Concat(h.fields[2:3], h.fields)
		}},
		{name: "a pseudo-header of answers", want: resetBroken, headers: func(h *requestHeaders) {
			first := usualHeaders("").fields[:1]
			first[0].Name, first[0].Value = ":status", "200"
			h.fields = slices.Concat(first, h.fields)
		}},
		{name: "binary metadata that is not Base64", headers: with("a-bin", "!"), want: allowed, grpcGo: brokenHeader,
			row: "headers of binary metadata (`-bin`) that are not Base64"},
		{name: "90 headers", want: allowed, headers: func(h *requestHeaders) {
			for range 90 {
				h.add("a", "b")
			}
		}},
		{name: "a header of 20 kB", headers: with("a", strings.Repeat("b", 15_000)), want: allowed},
		{name: "a frame of headers that is too large", headers: with("a", strings.Repeat("|", 30_000)),
			want: "GOAWAY FRAME_SIZE_ERROR", grpcGo: "closed", row: brokenRow},
	}
}

// unusualMessages are requests whose content is unusual.
func unusualMessages() []unusual {
	usual := framed(0, usualMessage)
	const window = 65_535 // of grpc-go, which raises it only for a client that reads its WINDOW_UPDATE
	large := append(bytes.Clone(usualMessage), unknownField(window-len(usual)-len(usualMessage))...)
	return []unusual{
		{name: "a message in pieces of a byte", body: slices.Collect(slices.Chunk(usual, 1)), want: allowed},
		{name: "an empty frame at the end", body: [][]byte{usual, nil}, want: allowed},
		{name: "an empty frame at the start", body: [][]byte{nil, usual}, want: allowed},
		{name: "no content", body: [][]byte{nil}, want: brokenCall},
		{name: "a part of the prefix", body: [][]byte{{0, 0}}, want: brokenCall},
		{name: "a message that is cut off", body: [][]byte{usual[:10]}, want: brokenCall},
		{name: "a message that is longer than its prefix says", body: [][]byte{usual, {0}}, want: brokenCall},
		{name: "two messages", body: [][]byte{usual, usual}, want: brokenCall},
		{name: "an empty message", body: [][]byte{framed(0, nil)}, want: "status 3"},
		{name: "a malformed message", body: [][]byte{framed(0, []byte{0xff})}, want: brokenCall},
		{name: "a compressed message without grpc-encoding", body: [][]byte{framed(1, zipped(usualMessage))},
			want: brokenCall},
		{name: "a compressed message with grpc-encoding identity", headers: with("grpc-encoding", "identity"),
			body: [][]byte{framed(1, zipped(usualMessage))}, want: brokenCall},
		{name: "an unknown flag", body: [][]byte{framed(2, usualMessage)}, want: brokenCall},
		{name: "a message of 60 kB", body: [][]byte{framed(0, large)}, want: allowed},
		{name: "a message beyond 1 MiB by its prefix", body: [][]byte{{0, 0xff, 0xff, 0xff, 0xff}}, want: "status 8"},
	}
}

// unknownField returns a field that is skipped, and takes n bytes.
func unknownField(n int) []byte {
	const head = 5 // tag and length
	b := []byte{15<<3 | 2, 0x80, 0x80, 0x80, 0}
	for i, rest := 1, n-head; i < head; i, rest = i+1, rest>>7 {
		b[i] |= byte(rest & 0x7f)
	}
	return append(b, make([]byte, n-head)...)
}

// unusualFrames are requests in unusual frames.
func unusualFrames() []unusual {
	usual := framed(0, usualMessage)
	return []unusual{
		{name: "END_STREAM with the headers", want: brokenCall, send: func(p *rawClient) {
			p.headers(1, usualHeaders(rls.Method), true)
		}},
		{name: "END_STREAM with the headers of an unknown method", want: unknownCall, send: func(p *rawClient) {
			p.headers(1, usualHeaders("/none"), true)
		}},
		{name: "a message of an unknown method, and no end", want: unknownCall, send: func(p *rawClient) {
			p.headers(1, usualHeaders("/none"), false)
			p.data(1, false, usual)
		}},
		{name: "trailers at the end", want: allowed, grpcGo: "GOAWAY PROTOCOL_ERROR",
			row: "trailers at the end of a request", send: func(p *rawClient) {
				p.headers(1, usualHeaders(rls.Method), false)
				p.data(1, false, usual)
				trailers := new(requestHeaders)
				trailers.add("a", "b")
				p.headers(1, trailers, true)
			}},
		{name: "padding", want: allowed, send: func(p *rawClient) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(usualHeaders(rls.Method)),
				EndHeaders: true, PadLength: 100})
			_ = p.WriteDataPadded(1, true, usual, make([]byte, 200))
		}},
		{name: "a priority with the headers", want: allowed, send: func(p *rawClient) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(usualHeaders(rls.Method)),
				EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 3, Weight: 1}})
			p.data(1, true, usual)
		}},
		{name: "headers in three frames", want: allowed, send: func(p *rawClient) {
			block := p.encode(usualHeaders(rls.Method))
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:5]})
			_ = p.WriteContinuation(1, false, block[5:9])
			_ = p.WriteContinuation(1, true, block[9:])
			p.data(1, true, usual)
		}},
		{name: "frames of unknown types", want: allowed, send: func(p *rawClient) {
			_ = p.WriteRawFrame(0xfa, 0xff, 0, []byte("x"))
			p.headers(1, usualHeaders(rls.Method), false)
			_ = p.WriteRawFrame(0xfb, 0xff, 1, []byte("x"))
			p.data(1, true, usual)
		}},
		{name: "a stream of an even number", want: "GOAWAY PROTOCOL_ERROR", send: func(p *rawClient) {
			p.headers(2, usualHeaders(rls.Method), false)
			p.data(2, true, usual)
		}},
		{name: "a header block that is no HPACK", want: "GOAWAY COMPRESSION_ERROR", grpcGo: "closed", row: brokenRow,
			send: func(p *rawClient) {
				_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true})
			}},
		{name: "a window update of 0 for a stream", want: resetBroken, send: func(p *rawClient) {
			p.headers(1, usualHeaders(rls.Method), false)
			_ = p.WriteWindowUpdate(1, 0)
		}},
		{name: "DATA on a stream that was never begun", want: "GOAWAY PROTOCOL_ERROR", grpcGo: allowed, row: brokenRow,
			send: func(p *rawClient) {
				p.data(3, true, usual)
				call(rls.Method, usual)(p)
			}},
		{name: "a stream that depends on itself", want: "GOAWAY PROTOCOL_ERROR", grpcGo: allowed, row: brokenRow,
			send: func(p *rawClient) {
				_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(usualHeaders(rls.Method)),
					EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
				p.data(1, true, usual)
			}},
	}
}

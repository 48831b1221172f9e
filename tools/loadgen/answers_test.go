package loadgen

import (
	"strings"

	"golang.org/x/net/http2"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// data answers with these bytes as DATA.
func (p *peer) data(id uint32, bytes ...byte) {
	p.headers(id, false, ":status", "200")
	_ = p.WriteData(id, false, bytes)
	p.headers(id, true, "grpc-status", "0")
}

// message answers with these bytes as a message.
func (p *peer) message(id uint32, bytes ...byte) {
	p.data(id, append([]byte{0, 0, 0, 0, byte(len(bytes))}, bytes...)...)
}

func inBytes(p *peer, id uint32) {
	p.headers(id, false, ":status", "200")
	for i := range okMessage {
		_ = p.WriteData(id, false, okMessage[i:i+1])
	}
	_ = p.WriteData(id, false, nil)
	p.headers(id, true, "grpc-status", "0")
}

func padded(p *peer, id uint32) {
	p.headers(id, false, ":status", "200")
	_ = p.WriteDataPadded(id, false, okMessage, make([]byte, 200))
	p.headers(id, true, "grpc-status", "0")
}

func continued(p *peer, id uint32) {
	b := block(":status", "200", "content-type", "application/grpc")
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:3]})
	_ = p.WriteContinuation(id, false, b[3:7])
	_ = p.WriteContinuation(id, true, b[7:])
	_ = p.WriteData(id, false, okMessage)
	b = block("grpc-status", "0")
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:3], EndStream: true})
	_ = p.WriteContinuation(id, true, b[3:])
}

func busy(p *peer, id uint32) {
	_ = p.WritePing(false, [8]byte{1})
	_ = p.WriteWindowUpdate(0, 100)
	_ = p.WriteWindowUpdate(id, 1)
	_ = p.WriteRawFrame(0xfa, 0, id, []byte("unknown"))
	_ = p.WriteRSTStream(1_000_001, http2.ErrCodeCancel) // of no request
	allowed(p, id)
	_ = p.WriteData(id, true, []byte("after the end"))
}

func twice(p *peer, id uint32) {
	p.headers(id, false, ":status", "200")
	_ = p.WriteData(id, false, okMessage)
	_ = p.WriteData(id, false, okMessage)
	p.headers(id, true, "grpc-status", "0")
}

func tooLarge(p *peer, id uint32) {
	p.headers(id, false, ":status", "200")
	_ = p.WriteData(id, false, []byte{0, 0, 0x20, 0, 0}) // 2 MiB
	for range 70 {
		_ = p.WriteData(id, false, make([]byte, maxFrame))
	}
	p.headers(id, true, "grpc-status", "0")
}

// only answers with these fields alone.
func only(fields ...string) func(*peer, uint32) {
	return func(p *peer, id uint32) { p.headers(id, true, fields...) }
}

func resets(code http2.ErrCode) func(*peer, uint32) {
	return func(p *peer, id uint32) { _ = p.WriteRSTStream(id, code) }
}

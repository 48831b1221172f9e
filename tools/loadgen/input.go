package loadgen

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frameHeader is the length of what begins a frame: length, type, flags and stream.
const frameHeader = 9

// input has what was read from the server and not handled.
type input struct {
	buffer   []byte
	from, to int
}

// next returns the bytes of the next frame, nil if it is not complete yet. Of a frame that is too long, it returns only
// the header. The bytes are valid until more is read from the connection.
func (in *input) next() []byte {
	rest := in.buffer[in.from:in.to]
	if len(rest) < frameHeader {
		return nil
	}
	size := frameHeader
	if length := payloadLength(rest); length <= maxFrame {
		size += length
	}
	if len(rest) < size {
		return nil
	}
	in.from += size
	return rest[:size]
}

// room returns the free part of the buffer, in which a whole frame fits behind what is there.
func (in *input) room() []byte {
	in.to = copy(in.buffer, in.buffer[in.from:in.to])
	in.from = 0
	if in.to == len(in.buffer) {
		in.buffer = append(in.buffer, make([]byte, frameHeader+maxFrame)...)
	}
	return in.buffer[in.to:]
}

// frame is a frame that is read in place.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

// readFrame reads HEADERS and DATA as almost all answers have them: complete, of a stream, without padding or priority.
// ok is false for all other frames.
func readFrame(raw []byte) (f frame, ok bool) {
	f = frame{
		kind: http2.FrameType(raw[3]), flags: http2.Flags(raw[4]), stream: binary.BigEndian.Uint32(raw[5:]) &^ (1 << 31),
		payload: raw[frameHeader:],
	}
	const headersFlags = http2.FlagHeadersEndHeaders | http2.FlagHeadersPadded | http2.FlagHeadersPriority
	switch f.kind {
	case http2.FrameHeaders:
		ok = f.flags&headersFlags == http2.FlagHeadersEndHeaders
	case http2.FrameData:
		ok = !f.flags.Has(http2.FlagDataPadded)
	}
	return f, ok && f.stream != 0 && len(f.payload) == payloadLength(raw)
}

func payloadLength(raw []byte) int { return int(binary.BigEndian.Uint32(raw) >> 8) }

// appendFrame appends a frame. x/net's framer would copy the payload once more.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, byte(flags)), stream), payload...)
}

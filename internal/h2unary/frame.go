package h2unary

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHeader = 9
	// maxFrame is the longest payload in either direction: the default and minimum of SETTINGS_MAX_FRAME_SIZE.
	maxFrame = 16384
	// maxWindow is the largest flow control window.
	maxWindow = 1<<31 - 1
	// lastStreamUnknown is the last stream of the first GOAWAY.
	lastStreamUnknown = 1<<31 - 1
)

// frame is a frame of a client. Its payload is a part of the read buffer.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

// nextFrame returns the first frame of b and its length. ok is false if b has no complete frame, or one that is too
// large: then length is that of its payload.
func nextFrame(b []byte) (f frame, length int, ok bool) {
	if len(b) < frameHeader {
		return frame{}, 0, false
	}
	length = int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if length > maxFrame || len(b) < frameHeader+length {
		return frame{}, length, false
	}
	return frame{
		kind: http2.FrameType(b[3]), flags: http2.Flags(b[4]), stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
		payload: b[frameHeader : frameHeader+length],
	}, frameHeader + length, true
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, length int) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameRSTStream, 0, stream, 4), uint32(code))
}

func appendWindowUpdate(b []byte, stream uint32, increment int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameWindowUpdate, 0, stream, 4), uint32(increment))
}

func appendPing(b []byte, flags http2.Flags, data []byte) []byte {
	return append(appendFrame(b, http2.FramePing, flags, 0, len(data)), data...)
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, debug string) []byte {
	b = appendFrame(b, http2.FrameGoAway, 0, 0, 8+len(debug))
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, debug...)
}

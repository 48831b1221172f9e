package h2unary

import "encoding/binary"

// preface is what a client sends before its first frame (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHeader = 9
	// maxFrame is the longest payload in either direction. It is the default of SETTINGS_MAX_FRAME_SIZE, and the least
	// that peers must accept.
	maxFrame = 16384
	// maxWindow is the largest flow control window.
	maxWindow = 1<<31 - 1
)

type frameType byte

// The types of frames (RFC 9113, 6).
const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	framePriority     frameType = 2
	frameReset        frameType = 3
	frameSettings     frameType = 4
	framePushPromise  frameType = 5
	framePing         frameType = 6
	frameGoAway       frameType = 7
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
)

// The flags of frames.
const (
	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// errorCode is a code of RST_STREAM and GOAWAY (RFC 9113, 7).
type errorCode uint32

const (
	noError           errorCode = 0x0
	protocolError     errorCode = 0x1
	internalError     errorCode = 0x2
	flowControlError  errorCode = 0x3
	streamClosed      errorCode = 0x5
	frameSizeError    errorCode = 0x6
	refusedStream     errorCode = 0x7
	cancelled         errorCode = 0x8
	compressionError  errorCode = 0x9
	enhanceYourCalm   errorCode = 0xb
	lastStreamUnknown           = 1<<31 - 1
)

// frame is a frame of a client. Its payload is a part of the read buffer.
type frame struct {
	kind    frameType
	flags   byte
	stream  uint32
	payload []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

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
		kind: frameType(b[3]), flags: b[4], stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
		payload: b[frameHeader : frameHeader+length],
	}, frameHeader + length, true
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, kind frameType, flags byte, stream uint32, length int) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendReset(b []byte, stream uint32, code errorCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameReset, 0, stream, 4), uint32(code))
}

func appendWindowUpdate(b []byte, stream uint32, increment int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameWindowUpdate, 0, stream, 4), uint32(increment))
}

func appendPing(b []byte, flags byte, data []byte) []byte {
	return append(appendFrame(b, framePing, flags, 0, len(data)), data...)
}

func appendGoAway(b []byte, last uint32, code errorCode, debug string) []byte {
	b = appendFrame(b, frameGoAway, 0, 0, 8+len(debug))
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, debug...)
}

package loadgen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// frameHeader is the length of what begins a frame: length, type, flags and stream.
const frameHeader = 9

// frame is a frame of the server. Its payload is valid until more is read from the connection.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	length  int // with padding
	payload []byte
}

// input has what was read from the server and not handled. Frames are read in place: x/net's framer copies each of them
// and allocates some, which takes more CPU than everything else here.
type input struct {
	buffer   []byte
	from, to int
	open     uint32 // the stream whose header block is not complete; only CONTINUATION may follow
}

// next returns the next frame, and false if it is not complete yet.
func (in *input) next() (f frame, ok bool, err error) {
	rest := in.buffer[in.from:in.to]
	if len(rest) < frameHeader {
		return f, false, nil
	}
	size := frameHeader + int(binary.BigEndian.Uint32(rest)>>8)
	switch {
	case bytes.HasPrefix(rest, []byte("HTTP/1.")):
		return f, false, errors.New("the frame header looked like an HTTP/1.1 header")
	case size > frameHeader+maxFrame:
		return f, false, fmt.Errorf("the server sent a frame of %d bytes", size-frameHeader)
	}
	if len(rest) < size {
		return f, false, nil
	}
	in.from += size
	f = frame{
		kind: http2.FrameType(rest[3]), flags: http2.Flags(rest[4]), stream: binary.BigEndian.Uint32(rest[5:]) &^ (1 << 31),
		length: size - frameHeader, payload: rest[frameHeader:size],
	}
	if err = in.check(&f); err == nil {
		err = f.unpad()
	}
	return f, true, err
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

// check reports a frame that must not come now, on this stream or with this length (RFC 9113, 6).
func (in *input) check(f *frame) error {
	ofStream, least, most := true, 0, maxFrame
	switch f.kind {
	case http2.FrameHeaders, http2.FrameContinuation, http2.FrameData, http2.FramePushPromise:
	case http2.FrameRSTStream:
		least, most = 4, 4
	case http2.FrameSettings:
		ofStream = false
	case http2.FramePing:
		ofStream, least, most = false, 8, 8
	case http2.FrameGoAway:
		ofStream, least = false, 8
	case http2.FrameWindowUpdate:
		ofStream, least, most = f.stream != 0, 4, 4
	default:
		ofStream = f.stream != 0 // others are ignored
	}
	continues := f.kind == http2.FrameContinuation
	if ofStream != (f.stream != 0) || len(f.payload) < least || len(f.payload) > most ||
		continues != (in.open != 0) || continues && f.stream != in.open {
		return fmt.Errorf("the server sent %v of %d bytes on stream %d, where it is not allowed", f.kind, f.length, f.stream)
	}
	if continues || f.kind == http2.FrameHeaders {
		in.open = f.stream
		if f.flags.Has(http2.FlagHeadersEndHeaders) {
			in.open = 0
		}
	}
	return nil
}

// unpad removes the padding of the payload, and the priority of HEADERS.
func (f *frame) unpad() error {
	headers := f.kind == http2.FrameHeaders
	if !headers && f.kind != http2.FrameData {
		return nil
	}
	padding, priority := 0, 0
	body := f.payload
	if f.flags.Has(http2.FlagDataPadded) && len(body) > 0 { // it is the same flag in HEADERS
		padding, body = int(body[0]), body[1:]
	}
	if headers && f.flags.Has(http2.FlagHeadersPriority) {
		priority = 5
	}
	if padding+priority > len(body) {
		return fmt.Errorf("the server sent %v of %d bytes with %d bytes of padding", f.kind, f.length, padding)
	}
	f.payload = body[priority : len(body)-padding]
	return nil
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, size int) []byte {
	return append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// appendNumberFrame appends a frame with a number of 32 bits.
func appendNumberFrame(b []byte, kind http2.FrameType, stream, number uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, kind, 0, stream, 4), number)
}

package guard

import "encoding/binary"

// preface is the number of bytes that a client sends before its first frame.
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

const (
	frameHeader = 9
	frameReset  = 4 // length of the payload of RST_STREAM
)

// The types and flags of frames that the guard reads (RFC 9113, 6).
const (
	typeData         = 0
	typeHeaders      = 1
	typeReset        = 3
	typeContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
)

type frame struct {
	kind, flags byte
	length      int
	stream      uint32
}

func (f frame) endsStream() bool {
	return f.flags&flagEndStream != 0 && (f.kind == typeData || f.kind == typeHeaders)
}

// frames tracks the frames in one direction of a connection. A read or write may have any part of a frame.
type frames struct {
	skip    int // bytes left of the preface
	head    [frameHeader]byte
	have    int  // bytes read of head
	rest    int  // bytes left of the payload
	inBlock bool // within a header block, where only CONTINUATION may follow
	begun   int64
}

// follow reads b, and calls visit for each frame whose header ends in b.
func (fs *frames) follow(b []byte, now int64, visit func(frame)) {
	for {
		n := min(fs.skip, len(b))
		fs.skip -= n
		b = b[n:]
		n = min(fs.rest, len(b))
		fs.rest -= n
		b = b[n:]
		if len(b) == 0 {
			return
		}
		if fs.have == 0 && !fs.inBlock {
			fs.begun = now
		}
		n = copy(fs.head[fs.have:], b)
		fs.have += n
		b = b[n:]
		if fs.have < frameHeader {
			return
		}
		fs.have = 0
		f := frame{
			length: int(fs.head[0])<<16 | int(fs.head[1])<<8 | int(fs.head[2]),
			kind:   fs.head[3], flags: fs.head[4],
			stream: binary.BigEndian.Uint32(fs.head[5:]) &^ (1 << 31),
		}
		fs.rest = f.length
		if f.kind == typeHeaders || f.kind == typeContinuation {
			fs.inBlock = f.flags&flagEndHeaders == 0
		}
		visit(f)
	}
}

// atBoundary reports whether another frame may be inserted here.
func (fs *frames) atBoundary() bool {
	return fs.skip == 0 && fs.rest == 0 && fs.have == 0 && !fs.inBlock
}

// missing returns how many bytes must follow before atBoundary can be true, at least 1.
func (fs *frames) missing() int {
	if fs.skip > 0 || fs.rest > 0 {
		return fs.skip + fs.rest
	}
	return frameHeader - fs.have
}

// appendReset appends a RST_STREAM frame.
func appendReset(b []byte, stream, code uint32) []byte {
	b = append(b, 0, 0, frameReset, typeReset, 0)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, code)
}

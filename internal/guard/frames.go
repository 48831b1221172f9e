package guard

import "encoding/binary"

// preface is how many bytes a client sends before its first frame.
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

const (
	frameHeader = 9
	frameReset  = 4 // the length of the payload of RST_STREAM
)

// The types and flags of frames that matter here (RFC 9113, 6).
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

// frames follows the frames in one direction of a connection, however they are cut into reads or writes.
type frames struct {
	skip    int // what is left of the preface
	head    [frameHeader]byte
	have    int  // of head
	rest    int  // of the payload
	inBlock bool // a header block has begun, whose CONTINUATION has to come next
	begun   int64
}

// follow moves to the end of b, and visits each frame whose header ends in it.
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

// between reports whether another frame could be put in here.
func (fs *frames) between() bool { return fs.skip == 0 && fs.rest == 0 && fs.have == 0 && !fs.inBlock }

// missing is how much has to come until between may be true, and at least 1.
func (fs *frames) missing() int {
	if fs.skip > 0 || fs.rest > 0 {
		return fs.skip + fs.rest
	}
	return frameHeader - fs.have
}

// appendReset appends a RST_STREAM.
func appendReset(b []byte, stream, code uint32) []byte {
	b = append(b, 0, 0, frameReset, typeReset, 0)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, code)
}

package loadgen

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// tableSize is the size of the table of HPACK for answers, the default of HTTP/2.
const tableSize = 4096

// meaning is what a header block says about an answer.
type meaning struct {
	http   string // :status, if it is not 200
	status int    // grpc-status
	reason string // grpc-message
}

// field reads a header or a trailer.
func (m *meaning) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		if f.Value != "200" {
			m.http = f.Value
		}
	case "grpc-status":
		var err error
		if m.status, err = strconv.Atoi(f.Value); err != nil {
			m.status = int(codes.Unknown)
		}
	case "grpc-message":
		m.reason = f.Value
	}
}

// meanings decodes the header blocks of one connection. It remembers those that have only indexes: such a block changes
// nothing in the table, and means the same until another block changes the table.
type meanings struct {
	decoder *hpack.Decoder
	current meaning // of the block that is being decoded
	known   []known
}

type known struct {
	block []byte
	meaning
}

func newMeanings() *meanings {
	m := &meanings{}
	m.decoder = hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { m.current.field(f) })
	m.decoder.SetMaxStringLength(maxHeader)
	return m
}

// read returns the meaning of a block.
func (m *meanings) read(block []byte) (meaning, error) {
	for i := range m.known {
		if k := &m.known[i]; bytes.Equal(k.block, block) {
			return k.meaning, nil
		}
	}
	m.current = meaning{status: noStatus}
	_, err := m.decoder.Write(block)
	err = errors.Join(err, m.decoder.Close())
	const most = 4                                                    // headers and trailers, and those of errors
	notAnIndex := func(b byte) bool { return b <= 0x80 || b == 0xff } // of one byte: RFC 7541, 6.1
	switch {
	case err != nil:
	case slices.ContainsFunc(block, notAnIndex):
		m.known = m.known[:0]
	case len(m.known) < most:
		m.known = append(m.known, known{slices.Clone(block), m.current})
	}
	return m.current, err
}

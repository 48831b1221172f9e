package h2unary

import (
	"bytes"
	"errors"

	"golang.org/x/net/http2/hpack"
)

// Errors of header blocks.
var (
	errBlock      = errors.New("the header block is not valid HPACK")
	errLateResize = errors.New("a size update follows a field")
	errTooLarge   = errors.New("the headers are too large")
)

// Bounds of the headers of a request after decompression. A block of 64 KiB can stand for 2 GB.
const (
	maxFields     = 100
	maxHeaderList = 64 << 10
)

// The representations of fields (RFC 7541, 6), and the lengths of the prefixes of their first numbers.
const (
	isIndexed     = 0x80
	isInsertion   = 0x40
	isResize      = 0x20
	indexedBits   = 7
	insertionBits = 6
	resizeBits    = 5
	plainBits     = 4
	isHuffman     = 0x80
	stringBits    = 7
)

// decoder reads header blocks (RFC 7541).
type decoder struct {
	table table
	// literals are paths with Huffman values. Envoy sends the same path with each request, but never puts it into the
	// table. The meaning of such bytes never changes: they do not use the dynamic table.
	literals memo[field]
	// name and value are memory for the text of literals. made is the last literal.
	name, value bytes.Buffer
	made        field
}

// decode passes each field of a block to visit. A field is valid until visit returns. changes means that the block
// inserts fields into the dynamic table or resizes it.
func (d *decoder) decode(block []byte, visit func(*field)) (changes bool, err error) {
	count, size := 0, 0
	for len(block) > 0 {
		first := block[0]
		if first&(isIndexed|isInsertion|isResize) == isResize {
			if count > 0 {
				return changes, errLateResize
			}
			var limit uint64
			if limit, block, err = readNumber(block, resizeBits); err != nil || limit > maxTable {
				return changes, errBlock
			}
			changes = true
			d.table.resize(int(limit))
			continue
		}
		var f *field
		switch {
		case first&isIndexed != 0:
			var index uint64
			if index, block, err = readNumber(block, indexedBits); err == nil {
				f, err = d.table.at(index)
			}
		case first&isInsertion != 0:
			changes = true
			f, block, err = d.readLiteral(block, insertionBits)
		default:
			f, block, err = d.readLiteral(block, plainBits)
		}
		if err != nil {
			return changes, err
		}
		count++
		size += f.size()
		if count > maxFields || size > maxHeaderList {
			return changes, errTooLarge
		}
		visit(f)
		if first&(isIndexed|isInsertion) == isInsertion {
			d.table.insert(*f)
		}
	}
	d.release()
	return changes, nil
}

// maxScratch bounds the memory for decoded text that an idle connection keeps.
const maxScratch = 4 << 10

// release forgets the last literal, which can be a part of a read buffer, and large memory for text.
func (d *decoder) release() {
	d.made = field{}
	for _, b := range []*bytes.Buffer{&d.name, &d.value} {
		if b.Cap() > maxScratch {
			*b = bytes.Buffer{}
		}
	}
}

// readLiteral reads a field whose value, and maybe name, is in the block.
func (d *decoder) readLiteral(b []byte, bits uint) (f *field, rest []byte, err error) {
	index, rest, err := readNumber(b, bits)
	if err != nil {
		return nil, nil, err
	}
	made, name := field{}, encoded{}
	if index > 0 {
		named, err := d.table.at(index)
		if err != nil {
			return nil, nil, err
		}
		made.kind, made.name = named.kind, named.name
		if made.kind == malformedField { // Perhaps only the value of that field is malformed.
			made.kind = kindOf(made.name)
		}
	} else if name, rest, err = readString(rest); err != nil {
		return nil, nil, err
	}
	value, rest, err := readString(rest)
	if err != nil {
		return nil, nil, err
	}
	raw := b[:len(b)-len(rest)]
	memo := made.kind == pathField && value.huffman && bits == plainBits && index <= staticFields &&
		len(raw) <= maxLiteral
	if memo {
		if known := d.literals.find(raw); known != nil {
			return known, rest, nil
		}
	}
	if index == 0 {
		if made.name, err = name.decode(&d.name); err != nil {
			return nil, nil, err
		}
		made.kind = kindOf(made.name)
	}
	if made.value, err = value.decode(&d.value); err != nil {
		return nil, nil, err
	}
	if !validValue(made.value) {
		made.kind = malformedField
	}
	if memo {
		d.literals.add(raw, field{made.kind, bytes.Clone(made.name), bytes.Clone(made.value)})
	}
	d.made = made
	return &d.made, rest, nil
}

// encoded is a text in a block.
type encoded struct {
	text    []byte
	huffman bool
}

// decode returns the text. Decoded text is in room, until the next use of it.
func (s encoded) decode(room *bytes.Buffer) ([]byte, error) {
	if !s.huffman {
		return s.text, nil
	}
	room.Reset()
	if _, err := hpack.HuffmanDecode(room, s.text); err != nil {
		return nil, errBlock
	}
	return room.Bytes(), nil
}

func readString(b []byte) (s encoded, rest []byte, err error) {
	if len(b) == 0 {
		return encoded{}, nil, errBlock
	}
	s.huffman = b[0]&isHuffman != 0
	length, rest, err := readNumber(b, stringBits)
	if err != nil || length > uint64(len(rest)) {
		return encoded{}, nil, errBlock
	}
	s.text = rest[:length]
	return s, rest[length:], nil
}

// readNumber reads a number whose first bits are the last bits of b[0] (RFC 7541, 5.1). No valid number of a block has
// more than 28 bits in further bytes.
func readNumber(b []byte, bits uint) (n uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errBlock
	}
	most := byte(1)<<bits - 1
	n, rest = uint64(b[0]&most), b[1:]
	if n < uint64(most) {
		return n, rest, nil
	}
	for shift := 0; shift <= 28 && len(rest) > 0; shift += 7 {
		c := rest[0]
		rest = rest[1:]
		n += uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return n, rest, nil
		}
	}
	return 0, nil, errBlock
}

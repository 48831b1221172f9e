package redisstore

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/extauthz/extauthz/internal/texts"
)

const (
	// mostBytes is the most bytes of a reply to the client of a node or of a sentinel. Most take less than 10 KiB.
	mostBytes = 1 << 20
	// mostPage is the same for a client of Connect. A page of API keys has no more (authz/rediskeys).
	mostPage = 64 << 20
	// mostElements is the most elements of a reply, those of nested arrays included. COMMAND of Redis 7 has 11,507.
	mostElements = 100_000
	// mostDepth is the most arrays around an element. COMMAND of Redis 7 has 8.
	mostDepth = 8
	// maxLine is the longest line of a reply: a status or an error. Redis itself allows far less.
	maxLine = 64 << 10
	// maxNumber is the longest line of a number or a length, such as ":-9223372036854775808\r\n".
	maxNumber = 24
)

// bound checks the replies to the client library before the library reads them. The library allocates whatever length a
// reply announces. A bound divides the bytes into lines and texts as the library does.
type bound struct {
	most  int  // bytes of a reply
	resp3 bool // maps, pushes and nulls of RESP3 are accepted

	err error // the connection cannot be used any more

	// The reply: its bytes and elements, as announced, and how many elements follow in each array around the next one.
	used, elements int
	open           []int

	// The line that has begun: its length, and the first maxNumber bytes.
	length int
	line   []byte

	text int // the bytes that follow of a text, with the end of its line
}

// check takes the next bytes, and returns how many of them the library may read. If that is not all, err is set.
func (b *bound) check(data []byte) (within int) {
	for within < len(data) {
		rest := data[within:]
		n := min(b.text, len(rest))
		if n > 0 {
			if b.text -= n; b.text == 0 {
				b.endElement()
			}
		} else {
			n = bytes.IndexByte(rest, '\n') + 1
			ended := n > 0
			if !ended {
				n = len(rest)
			}
			if b.err = b.addLine(rest[:n], ended); b.err != nil {
				return within
			}
		}
		within += n
	}
	return within
}

// addLine takes a part of a line.
func (b *bound) addLine(part []byte, ended bool) error {
	b.line = append(b.line, part[:min(len(part), maxNumber-len(b.line))]...)
	b.length += len(part)
	b.used += len(part)
	longest := maxNumber
	switch b.line[0] {
	case '+', '-':
		longest = maxLine
	case '$', '*', ':':
	case '%', '>', '_':
		if b.resp3 {
			break
		}
		fallthrough
	default:
		return fmt.Errorf("%w: %.20q is of a type that was not asked for", errReply, b.line)
	}
	switch {
	case b.length > longest:
		return fmt.Errorf("%w: a line of more than %d bytes", errReply, longest)
	case b.used > b.most:
		return fmt.Errorf("%w: more than %d bytes", errReply, b.most)
	case !ended:
		return nil
	}
	line := b.line
	b.line, b.length = b.line[:0], 0
	switch line[0] {
	case '$', '*', '%', '>':
		return b.announce(line)
	}
	b.endElement()
	return nil
}

// announce takes a line with the length of what follows.
func (b *bound) announce(line []byte) error {
	number, whole := bytes.CutSuffix(line[1:], []byte("\r\n"))
	if whole && string(number) == "-1" { // nil: nothing follows
		b.endElement()
		return nil
	}
	length, err := strconv.ParseUint(texts.View(number), 10, 31)
	if err != nil || !whole {
		return fmt.Errorf("%w: the length %q", errReply, line)
	}
	n := int(length)
	if line[0] == '$' {
		b.text = n + len("\r\n")
		if b.used += b.text; b.used > b.most {
			return fmt.Errorf("%w: a text of %d bytes makes it more than %d", errReply, n, b.most)
		}
		return nil
	}
	if line[0] == '%' {
		n *= 2 // keys and values
	}
	switch {
	case n > mostElements-b.elements:
		return fmt.Errorf("%w: %d elements make it more than %d", errReply, n, mostElements)
	case n == 0:
		b.endElement()
		return nil
	case len(b.open) == mostDepth:
		return fmt.Errorf("%w: arrays nested more than %d deep", errReply, mostDepth)
	}
	b.elements += n
	b.open = append(b.open, n)
	return nil
}

// endElement ends an element, with the arrays of which it is the last one. It ends the reply if nothing is missing.
func (b *bound) endElement() {
	for last := len(b.open) - 1; last >= 0; last-- {
		if b.open[last]--; b.open[last] > 0 {
			return
		}
		b.open = b.open[:last]
	}
	b.used, b.elements = 0, 0
}

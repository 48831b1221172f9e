package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/extauthz/extauthz/internal/texts"
)

const (
	// maxLine is the longest line of a reply: a status or an error. Redis itself allows far less.
	maxLine = 64 << 10
	// maxText is the longest text of a reply. The answer to a request of a million takes fits.
	maxText = 256 << 20
	// firstRead is the room for the replies of a usual batch.
	firstRead = 8 << 10
)

// reply is a reply of Redis to a command of a worker: a text or an error.
type reply struct {
	text    []byte
	refused bool // text is that of an error
}

// errReply is the error of bytes that are no reply to a command of a worker. The connection cannot be used any more.
var errReply = errors.New("not a reply of Redis to a script call")

// parseReply reads the first reply of the bytes. n is its length, 0 if bytes are missing. The text is a part of the
// bytes.
func parseReply(data []byte) (r reply, n int, err error) {
	if len(data) == 0 {
		return reply{}, 0, nil
	}
	kind := data[0]
	if kind != '$' && kind != '+' && kind != '-' {
		return reply{}, 0, fmt.Errorf("%w: %.20q", errReply, data)
	}
	end := bytes.IndexByte(data[:min(len(data), maxLine)], '\n')
	switch {
	case end < 0 && len(data) >= maxLine:
		return reply{}, 0, fmt.Errorf("%w: a line of more than %d bytes", errReply, maxLine)
	case end < 0:
		return reply{}, 0, nil
	case data[end-1] != '\r':
		return reply{}, 0, fmt.Errorf("%w: %.20q", errReply, data)
	}
	line := data[1 : end-1]
	if kind != '$' {
		return reply{text: line, refused: kind == '-'}, end + 1, nil
	}
	length, err := strconv.ParseUint(texts.View(line), 10, 63)
	if err != nil || length > maxText {
		return reply{}, 0, fmt.Errorf("%w: a text of %.20q bytes", errReply, line)
	}
	last := end + 1 + int(length)
	if len(data) < last+2 {
		return reply{}, 0, nil
	}
	if data[last] != '\r' || data[last+1] != '\n' {
		return reply{}, 0, fmt.Errorf("%w: a text that does not end after %d bytes", errReply, length)
	}
	return reply{text: data[end+1 : last]}, last + 2, nil
}

// replies reads replies in place. The texts of replies are valid until reset.
type replies struct {
	from io.Reader
	data []byte // what was read since reset
	next int    // where the next reply begins
}

// reset ends the texts of all replies. It reports whether bytes are left, which are no replies to any commands.
func (r *replies) reset() (left bool) {
	left = r.next < len(r.data)
	r.data, r.next = texts.Reset(r.data), 0
	return left
}

// fill waits for bytes, and reads those that have arrived.
func (r *replies) fill() error {
	if len(r.data) == cap(r.data) {
		r.data = slices.Grow(r.data, max(firstRead, len(r.data)))
	}
	n, err := r.from.Read(r.data[len(r.data):cap(r.data)])
	r.data = r.data[:len(r.data)+n]
	if n > 0 {
		return nil
	}
	return err
}

// read returns the next reply.
func (r *replies) read() (reply, error) {
	for {
		answer, n, err := parseReply(r.data[r.next:])
		if n > 0 || err != nil {
			r.next += n
			return answer, err
		}
		if err := r.fill(); err != nil {
			return reply{}, err
		}
	}
}

package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
)

// firstRead is the room for the replies of a usual batch.
const firstRead = 8 << 10

// reply is a reply of Redis to a command of a worker: a text or an error.
type reply struct {
	text    []byte
	refused bool // text is that of an error
}

// errReply is the error of bytes that are no reply to what was asked. The connection cannot be used any more.
var errReply = errors.New("not a reply of Redis to this command")

// parseReply reads the first reply of data. Its text is a part of data, of at most that many bytes. n is the length of
// the reply, 0 if bytes are missing.
func parseReply(data []byte, most int) (r reply, n int, err error) {
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
	if err != nil || length > uint64(most) {
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

// read returns the next reply, whose text has at most that many bytes.
func (r *replies) read(most int) (reply, error) {
	for {
		answer, n, err := parseReply(r.data[r.next:], most)
		if n > 0 || err != nil {
			r.next += n
			return answer, err
		}
		if err := r.fill(); err != nil {
			return reply{}, err
		}
	}
}

// refusal is an error reply of Redis. It implements redis.Error.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError marks the error as a reply.
func (refusal) RedisError() {}

// errOther is the error of an answer to another script call. The connection cannot be used any more.
var errOther = errors.New("the answer to another call")

// read reads the reply to the command of a chunk, which was sent at a time. The error is that of the connection.
func (w *worker) read(ch *chunk, sent time.Time) error {
	ch.err = nil
	r, err := w.in.read(ch.most())
	if ch.asking && err == nil { // the reply to ASKING changes nothing: the one to the script call follows
		r, err = w.in.read(ch.most())
	}
	ch.reply.Sent, ch.reply.Received = sent, time.Now()
	switch {
	case err != nil:
		ch.err = err
		return err
	case r.refused:
		ch.err = refusal(r.text)
		return nil
	}
	return ch.take(r.text)
}

// take checks the answer of the script. The chunk has its lines in place: they are valid until the calls are answered.
func (ch *chunk) take(text []byte) error {
	echo, rest, _ := bytes.Cut(text, []byte{' '})
	clock, lines, _ := bytes.Cut(rest, []byte{'\n'})
	var nonce [maxNonce]byte
	if !bytes.Equal(echo, ch.appendNonce(nonce[:0])) {
		ch.err = fmt.Errorf("%w: %.100q", errOther, text)
		return ch.err
	}
	if bytes.Count(rest, []byte{'\n'}) != ch.requests {
		ch.err = fmt.Errorf("an answer of the script that does not fit %d requests: %.100q", ch.requests, rest)
		return nil
	}
	if ch.reply.Clock, ch.err = strconv.ParseInt(texts.View(clock), 10, 64); ch.err != nil {
		ch.err = fmt.Errorf("no time in an answer of the script: %w", ch.err)
	}
	ch.lines = texts.View(lines)
	return nil
}

package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
)

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
	r, err := w.in.read()
	if ch.asking && err == nil { // the reply to ASKING changes nothing: the one to the script call follows
		r, err = w.in.read()
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

package redisstore

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// script decides in Redis. After its first run, Redis knows it as scriptName.
var (
	script     = bucket.Script()
	scriptName = redis.NewScript(script).Hash()
)

// appendCommand appends the command for the chunk. Its last argument but one is a nonce that the answer must contain.
func (ch *chunk) appendCommand(b []byte, command, script string) []byte {
	if ch.asking {
		b = append(b, "*1\r\n$6\r\nASKING\r\n"...) // for the next command of the connection only
	}
	keys := len(ch.keys) + len(ch.beside)
	b = appendLine(b, '*', keys+5)
	b = appendWord(b, command)
	b = appendWord(b, script)
	var number [20]byte
	b = appendWord(b, strconv.AppendInt(number[:0], int64(keys), 10))
	for _, key := range ch.keys {
		b = appendWord(b, key)
	}
	for _, name := range slices.Backward(ch.beside) {
		b = appendWord(b, name)
	}
	ch.nonce = rand.Uint64()
	var nonce [maxNonce]byte
	b = appendWord(b, ch.appendNonce(nonce[:0]))
	return appendWord(b, ch.args)
}

// maxNonce is the length of the longest nonce.
const maxNonce = 13

// appendNonce appends the nonce of the last command.
func (ch *chunk) appendNonce(b []byte) []byte { return strconv.AppendUint(b, ch.nonce, 36) }

// appendWord appends a word of a command.
func appendWord[T string | []byte](b []byte, word T) []byte {
	b = appendLine(b, '$', len(word))
	b = append(b, word...)
	return append(b, "\r\n"...)
}

// appendLine appends the number of words that follow, or of the bytes of a word.
func appendLine(b []byte, kind byte, n int) []byte {
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, "\r\n"...)
}

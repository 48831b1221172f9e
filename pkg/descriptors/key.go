package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxPlain is the longest text that a key holds unchanged. The hash of a longer text needs less memory.
const maxPlain = 64

// AppendField appends a text to a key: its length, a colon, the text. Text that follows cannot be read as part of it.
// A long text is appended as `#` and 128 bits of its SHA-256. So is a text with a brace, because braces choose the
// slot of a key in a Redis Cluster. Two lists of texts give the same key only if they are equal.
func AppendField(key []byte, text string) []byte {
	if len(text) > maxPlain || hasBrace(text) {
		return appendHash(key, text)
	}
	key = strconv.AppendInt(key, int64(len(text)), 10)
	key = append(key, ':')
	return append(key, text...)
}

// AppendHashTag appends a Redis Cluster hash tag. Keys with the same hash tag share a slot.
func AppendHashTag(key []byte, text string) []byte {
	key = append(key, '{')
	if text == "" || len(text) > maxPlain || hasBrace(text) { // Redis ignores an empty tag
		key = appendHash(key, text)
	} else {
		key = append(key, text...)
	}
	return append(key, '}')
}

// hasBrace is strings.ContainsAny(text, "{}") in a third of the time.
func hasBrace(text string) bool {
	return strings.IndexByte(text, '{') >= 0 || strings.IndexByte(text, '}') >= 0
}

func appendHash(key []byte, text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return hex.AppendEncode(append(key, '#'), sum[:16])
}

package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxPlain is the longest text that a key carries as it is; a longer one would cost every bucket more memory than its hash.
const maxPlain = 64

// AppendField appends a text to a key such that what follows can not be taken for a part of it: its length, a colon, the text.
// Long texts, and those with a brace, which would choose the slot of a key in a Redis Cluster, are appended as `#` and 128
// bits of their SHA-256. So two lists of texts give the same key only when they are equal.
func AppendField(key []byte, text string) []byte {
	if len(text) > maxPlain || strings.ContainsAny(text, "{}") {
		return appendHash(key, text)
	}
	key = strconv.AppendInt(key, int64(len(text)), 10)
	key = append(key, ':')
	return append(key, text...)
}

// AppendHashTag appends a Redis Cluster hash tag: keys with the same text in it share a slot.
func AppendHashTag(key []byte, text string) []byte {
	key = append(key, '{')
	if text == "" || len(text) > maxPlain || strings.ContainsAny(text, "{}") { // an empty tag would be none
		key = appendHash(key, text)
	} else {
		key = append(key, text...)
	}
	return append(key, '}')
}

func appendHash(key []byte, text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return hex.AppendEncode(append(key, '#'), sum[:16])
}

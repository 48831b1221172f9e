package redisstore

import (
	"strings"
	"sync"
)

// These marks follow the prefix of all keys in the names of what is beside a bucket: its note, and the hash of its
// holds. No key of a bucket has a brace behind these letters.
const noteMark, holdsMark = "rl:r{", "rl:h{"

// besideOf returns the name of what is beside a bucket. It is in the slot of the bucket, and begins with the prefix of
// all keys, so that an ACL for the keys of buckets allows it too.
func besideOf(prefix, mark, key string) string {
	slot := slotOf(key)
	head, rest := prefix+mark, "}"+strings.TrimPrefix(key, prefix)
	if slotOf(head+rest) == slot { // the prefix has a tag in braces, so it sets the slot of all keys
		return head + rest
	}
	_, tagged, ok := strings.Cut(head, "{")   // what counts for the slot, up to the tag
	if ok && strings.HasPrefix(tagged, "}") { // empty braces: all of a key counts
		return head + rest + tagFor(slot, head+rest)
	}
	return head + tagFor(slot, tagged) + rest
}

// tagFor returns a text that leads to a slot if it follows the beginning of what counts for the slot. The checksum of
// both is that of the text alone, plus (without carry) that of the beginning and as many zeros.
func tagFor(slot uint16, begin string) string {
	zeros := [len(tag{})]byte{}
	after := checksum(checksum(0, begin), string(zeros[:])) % slots
	return string(tags()[slot^after][:])
}

// tag is a short text. There is one for each slot.
type tag [3]byte

// tags returns the tag of each slot.
var tags = sync.OnceValue(func() *[slots]tag {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	all := new([slots]tag)
	for i := range letters {
		for j := range letters {
			for k := range letters {
				t := tag{letters[i], letters[j], letters[k]}
				all[checksum(0, string(t[:]))%slots] = t
			}
		}
	}
	return all
})

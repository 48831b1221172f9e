package texts

import "unsafe"

// View returns the bytes as a text without a copy. A text must never change, so the caller must not write to the bytes
// while the text is used.
//
// A buffer to which texts are only appended keeps this rule until Reset. append writes behind the texts. If the buffer
// is full, it writes to other memory, and the texts keep the memory from before.
//
// A receiver that keeps such a text for longer must copy it (strings.Clone). With the race detector, Reset overwrites
// the texts, so that a test shows a text that was kept.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bytes returns the bytes of a text without a copy, for functions that only read them and do not keep them.
func Bytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// mostKept is the largest buffer that Reset keeps.
const mostKept = 64 << 10

// Reset ends all texts of a buffer, and returns the buffer without content for the next ones.
func Reset(buffer []byte) []byte {
	if overwrite {
		for i := range buffer {
			buffer[i] = 0xff
		}
	}
	if cap(buffer) > mostKept {
		return nil
	}
	return buffer[:0]
}

// mostListed is the largest list that Clear keeps, in bytes. A pooled batch has many lists.
const mostListed = 4 << 10

// Clear drops the elements of a list, and returns the list without elements for the next ones. If it is large, it
// returns nil, so that no request makes the service keep much memory.
func Clear[T any](list []T) []T {
	if cap(list)*int(unsafe.Sizeof(*new(T))) > mostListed {
		return nil
	}
	clear(list)
	return list[:0]
}

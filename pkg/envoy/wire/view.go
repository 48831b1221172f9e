package wire

import "unsafe"

// bytesOf returns the bytes of a text without a copy. Its callers only pass them to functions that read them and keep
// nothing, because a text must never change.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

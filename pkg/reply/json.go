package reply

import (
	"encoding/json"
	"strconv"
	"strings"
)

// appendMembers appends the beginning of a problem detail, up to the text of its member detail.
func appendMembers(b []byte, kind, title string, status int) []byte {
	b = appendQuoted(append(b, `{"type":`...), kind)
	b = appendQuoted(append(b, `,"title":`...), title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(status), 10)
	return append(b, `,"detail":"`...)
}

// appendQuoted appends a text as a string of JSON, as encoding/json writes it.
func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	begun := len(b)
	return append(escape(append(b, text...), begun), '"')
}

// escaped are the bytes of a text that encoding/json does not write as they are.
var escaped = func() (bytes [256]bool) {
	for c := range bytes {
		bytes[c] = c < ' ' || c >= 0x7f || strings.IndexByte(`"\<>&`, byte(c)) >= 0
	}
	return bytes
}()

// escape replaces the text b[begun:] by the content of a string of JSON. Few texts need it.
func escape(b []byte, begun int) []byte {
	for _, c := range b[begun:] {
		if escaped[c] {
			quoted, _ := json.Marshal(string(b[begun:])) // no error: a string
			return append(b[:begun], quoted[1:len(quoted)-1]...)
		}
	}
	return b
}

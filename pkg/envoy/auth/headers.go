package auth

import (
	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/pkg/wire"
)

// sendableValue returns the value as valid UTF-8, which a protobuf message requires. ok is false if it has control
// characters. Envoy writes CR and LF unchanged, so the text after them would be another header (RFC 9110, 5.5).
func sendableValue(value string) (valid string, ok bool) {
	if isPrintable(value) {
		return value, true
	}
	return wire.ValidText(value), httpguts.ValidHeaderFieldValue(value)
}

// isPrintable reports whether a text consists of visible characters of ASCII and spaces, as almost all values do.
func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

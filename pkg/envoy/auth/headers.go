package auth

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// reserved are headers that determine how a message is framed and routed. If this service changed one, Envoy and the
// upstream could disagree about where a message ends. The last one belongs to the protocol with Envoy over HTTP.
var reserved = [...]string{
	"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
	"upgrade", headersToRemove,
}

// sendableName returns the name in lower case. ok is false if no header may have it, such as a pseudo header.
func sendableName(name string) (lower string, ok bool) {
	if !httpguts.ValidHeaderFieldName(name) {
		return "", false
	}
	lower = strings.ToLower(name)
	return lower, !slices.Contains(reserved[:], lower)
}

// sendableValue returns the value as valid UTF-8, which a protobuf message requires. ok is false if it has control
// characters. Envoy writes CR and LF unchanged, so the text after them would be another header (RFC 9110, 5.5).
func sendableValue(value string) (valid string, ok bool) {
	return wire.ValidText(value), httpguts.ValidHeaderFieldValue(value)
}

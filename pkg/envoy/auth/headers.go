package auth

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// notOurs are headers that say how a message is framed and routed. Envoy and the servers behind it would disagree about where a
// message ends if anybody but Envoy set or removed them; and the last one is how this service speaks to Envoy over HTTP.
var notOurs = [...]string{
	"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	headersToRemove,
}

// sendableName returns the name in lower case; ok is false when no header may be sent under it. Pseudo headers have no such
// name.
func sendableName(name string) (lower string, ok bool) {
	if !httpguts.ValidHeaderFieldName(name) {
		return "", false
	}
	lower = strings.ToLower(name)
	return lower, !slices.Contains(notOurs[:], lower)
}

// sendableValue returns the value in valid UTF-8, without which no protobuf message could be sent; ok is false when it has
// control characters: Envoy writes CR and LF as they are, and what follows them would be another header (RFC 9110, 5.5).
func sendableValue(value string) (valid string, ok bool) {
	return wire.ValidText(value), httpguts.ValidHeaderFieldValue(value)
}

package h2unary

import "bytes"

// field is a header field. Its kind is found once, when it enters a table.
type field struct {
	kind        fieldKind
	name, value []byte
}

// newField returns a field with its kind.
func newField(name, value []byte) field {
	f := field{kind: kindOf(name), name: name, value: value}
	if !validValue(value) {
		f.kind = malformedField
	}
	return f
}

// size is the size of a field in a table and in a list (RFC 7541, 4.1; RFC 9113, 6.5.2).
func (f *field) size() int { return len(f.name) + len(f.value) + fieldOverhead }

const fieldOverhead = 32

// fieldKind is what a field means to a server of gRPC.
type fieldKind uint8

const (
	otherField fieldKind = iota
	methodField
	pathField
	schemeField
	authorityField
	hostField
	contentTypeField
	contentLengthField
	teField
	timeoutField
	encodingField
	// malformedField makes a request malformed (RFC 9113, 8.2 and 8.3): an invalid name or value, an unknown
	// pseudo-header, a field of connections.
	malformedField
)

func kindOf(name []byte) fieldKind {
	switch string(name) {
	case ":method":
		return methodField
	case ":path":
		return pathField
	case ":scheme":
		return schemeField
	case ":authority":
		return authorityField
	case "host":
		return hostField
	case "content-type":
		return contentTypeField
	case "content-length":
		return contentLengthField
	case "te":
		return teField
	case "grpc-timeout":
		return timeoutField
	case "grpc-encoding":
		return encodingField
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return malformedField
	}
	if !validName(name) {
		return malformedField
	}
	return otherField
}

// validName reports whether a name may be sent (RFC 9113, 8.2.1). Names are tokens (RFC 9110, 5.1) in lower case.
func validName(name []byte) bool {
	for _, c := range name {
		if !nameByte[c] {
			return false
		}
	}
	return len(name) > 0
}

var nameByte = func() (valid [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz" {
		valid[c] = true
	}
	return valid
}()

func validValue(value []byte) bool { return !bytes.ContainsAny(value, "\x00\r\n") }

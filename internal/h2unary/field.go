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

// kinds are the kinds of known names.
var kinds = map[string]fieldKind{
	":method": methodField, ":path": pathField, ":scheme": schemeField, ":authority": authorityField, "host": hostField,
	"content-type": contentTypeField, "content-length": contentLengthField, "te": teField, "grpc-timeout": timeoutField,
	"grpc-encoding": encodingField, "connection": malformedField, "keep-alive": malformedField,
	"proxy-connection": malformedField, "transfer-encoding": malformedField, "upgrade": malformedField,
}

func kindOf(name []byte) fieldKind {
	if kind, known := kinds[string(name)]; known || validName(name) {
		return kind // otherField if it is not known
	}
	return malformedField
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

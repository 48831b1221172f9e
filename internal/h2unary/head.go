package h2unary

import (
	"bytes"
	"time"
)

// head is what the header block of a request means.
type head struct {
	method  int // index of Config.Methods, -1 for another path
	fault   fault
	timeout time.Duration // 0 if there is none
	length  int64         // of content-length, -1 if there is none
	zipped  bool          // its message may be compressed by gzip
	kept    []Header
}

// Header is a header of a request.
type Header struct{ Name, Value string }

// maxKept bounds the headers that are kept of a request: they can be short on the wire. Larger ones are forgotten.
// Those of traces have a few hundred bytes.
const maxKept = 4 << 10

// keptBytes is the memory of the headers that are kept.
func (h *head) keptBytes() (n int64) {
	for i := range h.kept {
		n += int64(len(h.kept[i].Name) + len(h.kept[i].Value) + fieldOverhead)
	}
	return n
}

// fault is why a request is not passed to Serve. Of several, the least one counts, as at grpc-go.
type fault uint8

const (
	// malformed requests get RST_STREAM, the others the answers of answerFault.
	malformed fault = iota
	twoHosts
	notGRPC
	badTimeout
	noAuthority
	notPost
	timedOut
	unknownMethod
	badEncoding
	noFault
)

// headReader makes a head of the fields of a block.
type headReader struct {
	methods map[string]int
	keep    map[string]bool

	head
	regular bool // a regular field was seen, after which no pseudo-header may follow
	seen    [otherPseudo]bool
	post    bool
	grpc    bool
	timed   bool // it has a timeout, which may be 0
	hosts   int
}

// otherPseudo is greater than the kinds of pseudo-headers, which seen has.
const otherPseudo = authorityField + 1

func (r *headReader) reset() {
	*r = headReader{methods: r.methods, keep: r.keep, head: head{method: -1, fault: noFault, length: -1}}
}

// is records a fault, unless there is a worse one.
func (r *headReader) is(f fault) { r.fault = min(r.fault, f) }

// visit reads one field.
func (r *headReader) visit(f *field) {
	switch f.kind {
	case methodField, pathField, schemeField, authorityField:
		if r.regular || r.seen[f.kind] {
			r.is(malformed)
		}
		r.seen[f.kind] = true
		r.visitPseudo(f)
		return
	case malformedField:
		r.is(malformed)
	case hostField:
		r.hosts++
	case contentTypeField:
		r.grpc = r.grpc || isGRPC(f.value)
	case contentLengthField:
		n, ok := parseLength(f.value)
		if !ok || r.length >= 0 && r.length != n {
			r.is(malformed)
		}
		r.length = n
	case teField:
		if string(f.value) != "trailers" {
			r.is(malformed)
		}
	case timeoutField:
		if r.timeout, r.timed = parseTimeout(f.value); !r.timed {
			r.is(badTimeout)
		}
	case encodingField:
		r.zipped = string(f.value) == "gzip"
		if !r.zipped && len(f.value) > 0 && string(f.value) != "identity" {
			r.is(badEncoding)
		}
	case otherField:
		if r.keep[string(f.name)] && r.keptBytes()+int64(f.size()) <= maxKept {
			r.kept = append(r.kept, Header{string(f.name), string(f.value)})
		}
	}
	r.regular = true
}

func (r *headReader) visitPseudo(f *field) {
	switch f.kind {
	case methodField:
		r.post = string(f.value) == "POST"
	case pathField:
		if len(f.value) == 0 {
			r.is(malformed)
		}
		if m, ok := r.methods[string(f.value)]; ok {
			r.method = m
		}
	}
}

// finish returns the head after the last field.
func (r *headReader) finish() head {
	if !r.seen[methodField] || !r.seen[pathField] || !r.seen[schemeField] {
		r.is(malformed)
	}
	if r.hosts > 1 {
		r.is(twoHosts)
	}
	if !r.grpc {
		r.is(notGRPC)
	}
	if r.hosts == 0 && !r.seen[authorityField] {
		r.is(noAuthority)
	}
	if !r.post {
		r.is(notPost)
	}
	if r.timed && r.timeout == 0 {
		r.is(timedOut)
	}
	if r.method < 0 {
		r.is(unknownMethod)
	}
	return r.head
}

// finishTrailers reports whether the fields may be trailers.
func (r *headReader) finishTrailers() bool {
	return r.fault != malformed && r.seen == [otherPseudo]bool{}
}

// isGRPC reports whether a content-type is that of gRPC.
func isGRPC(value []byte) bool {
	rest, ok := bytes.CutPrefix(value, []byte(contentType))
	return ok && (len(rest) == 0 || rest[0] == '+' || rest[0] == ';')
}

func parseLength(value []byte) (n int64, ok bool) {
	const digits = 18 // they fit
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(value) > 0 && len(value) <= digits
}

// parseTimeout reads a grpc-timeout: one to eight digits and a unit. A value beyond the largest duration becomes that.
func parseTimeout(value []byte) (time.Duration, bool) {
	const digits = 8
	if len(value) < 2 || len(value) > digits+1 {
		return 0, false
	}
	n, ok := parseLength(value[:len(value)-1])
	unit := timeoutUnit(value[len(value)-1])
	if !ok || unit == 0 {
		return 0, false
	}
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// timeoutUnit returns a unit of grpc-timeout, 0 if there is no such unit.
func timeoutUnit(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

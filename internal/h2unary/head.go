package h2unary

import (
	"bytes"
	"strconv"
	"time"
)

// head is what the header block of a request means.
type head struct {
	// method is the index in Config.Methods, or -1 for another path.
	method int
	fault  fault
	// timeout is that of grpc-timeout, or 0 if there is none.
	timeout time.Duration
	// length is that of content-length, or -1 if there is none.
	length int64
	// zipped means that the message may be compressed by gzip.
	zipped bool
	kept   []field
}

// maxKept bounds the headers that are kept of a request, because they can be short on the wire. Larger ones are
// forgotten. Headers of traces have a few hundred bytes.
const maxKept = 4 << 10

// keptBytes is the memory of the headers that are kept.
func (h *head) keptBytes() (n int64) {
	for i := range h.kept {
		n += int64(h.kept[i].size())
	}
	return n
}

// fault is why a request is not passed to Serve. Of several faults the least one counts, as at grpc-go.
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
	// regular means that a regular field was seen, after which no pseudo-header may follow.
	regular bool
	seen    [otherPseudo]bool
	post    bool
	grpc    bool
	// timed means that the request has a timeout, which may be 0.
	timed bool
	hosts int
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
	pseudo := f.kind >= methodField && f.kind < otherPseudo
	if pseudo {
		if r.regular || r.seen[f.kind] {
			r.is(malformed)
		}
		r.seen[f.kind] = true
	}
	r.regular = r.regular || !pseudo
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
			r.kept = append(r.kept, field{name: bytes.Clone(f.name), value: bytes.Clone(f.value)})
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

// isGRPC reports whether a content-type is that of gRPC.
func isGRPC(value []byte) bool {
	rest, ok := bytes.CutPrefix(value, []byte(contentType))
	return ok && (len(rest) == 0 || rest[0] == '+' || rest[0] == ';')
}

func parseLength(value []byte) (n int64, ok bool) {
	const digits = 18 // Such a number fits into an int64.
	u, err := strconv.ParseUint(string(value), 10, 64)
	return int64(u), err == nil && len(value) <= digits
}

// parseTimeout reads a grpc-timeout, which has one to eight digits and a unit. It returns at most the largest duration.
func parseTimeout(value []byte) (time.Duration, bool) {
	const digits = 8
	if len(value) < 2 || len(value) > digits+1 {
		return 0, false
	}
	n, ok := parseLength(value[:len(value)-1])
	unit := timeoutUnits[value[len(value)-1]]
	if !ok || unit == 0 {
		return 0, false
	}
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// timeoutUnits are the units of grpc-timeout.
var timeoutUnits = [256]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

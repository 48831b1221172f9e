package loadgen

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// noStatus is the status of a request before its trailers.
const noStatus = -1

// request is one call in flight, with what is known of its answer.
type request struct {
	id uint32
	// due is the time from which the latency counts. sent is the time of the write, 0 before.
	due, sent time.Duration
	meaning          // of headers and trailers
	message   []byte // the message with its prefix, if it comes in parts
	decided   bool   // the message was read
	allowed   bool
	ends      bool  // END_STREAM came with HEADERS, and CONTINUATION follows
	broken    error // why the message cannot be read
}

// hear reads headers or trailers.
func (r *request) hear(m meaning) {
	r.http, r.reason = cmp.Or(m.http, r.http), cmp.Or(m.reason, r.reason)
	if m.status != noStatus {
		r.status = m.status
	}
}

// data reads a part of the message.
func (r *request) data(part []byte, allows func([]byte) (bool, error)) {
	message := part
	if len(r.message) > 0 || !complete(part) {
		r.message = append(r.message, part...)
		message = r.message
	}
	switch {
	case len(part) == 0:
	case r.decided:
		r.broken = errors.New("an answer with two messages")
	case len(message) > maxAnswer:
		r.broken, r.decided = fmt.Errorf("an answer of more than %d bytes", maxAnswer), true
		r.message = nil
	case complete(message):
		r.decided = true
		r.allowed, r.broken = allows(message[prefix:])
		if message[0] != 0 {
			r.broken = errors.New("a compressed answer")
		}
	}
}

// complete reports whether a message is complete, by its prefix.
func complete(message []byte) bool {
	return len(message) >= prefix && uint32(len(message)-prefix) == binary.BigEndian.Uint32(message[1:])
}

// failure is why a request has no answer.
type failure struct {
	status codes.Code
	reason string
}

// failure returns why a complete answer is none, and whether that is so.
func (r *request) failure() (failure, bool) {
	switch {
	case r.http != "":
		return failure{codes.Unknown, "HTTP status " + r.http}, true
	case r.status == noStatus:
		return failure{codes.Unknown, "an answer without a grpc-status"}, true
	case r.status != int(codes.OK):
		return failure{codes.Code(r.status), r.reason}, true //nolint:gosec // any number has a name
	case !r.decided:
		return failure{codes.Internal, "an answer without a message"}, true
	case r.broken != nil:
		return failure{codes.Internal, r.broken.Error()}, true
	}
	return failure{}, false
}

func unavailable(reason string) failure { return failure{codes.Unavailable, reason} }

// reset returns the failure that a client of gRPC reports for RST_STREAM.
func reset(code http2.ErrCode) failure {
	statuses := map[http2.ErrCode]codes.Code{
		http2.ErrCodeRefusedStream: codes.Unavailable, http2.ErrCodeCancel: codes.Canceled,
		http2.ErrCodeEnhanceYourCalm: codes.ResourceExhausted, http2.ErrCodeInadequateSecurity: codes.PermissionDenied,
	}
	return failure{cmp.Or(statuses[code], codes.Internal), fmt.Sprintf("RST_STREAM %v", code)}
}

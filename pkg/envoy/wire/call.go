package wire

import "time"

// Call is one request of a batch, and its answer, as messages.
type Call struct {
	// Request is the message of the request. It must not change before the answer.
	Request string
	// Deadline is that of the caller, the zero time if it has none.
	Deadline time.Time

	// Reply is the message of the answer, Err the reason if there is none.
	Reply []byte
	Err   error
	// Delay is how long to hold the reply. A reply with a delay has a place in the queue: call hold.Queue.Stay.
	Delay time.Duration
	// Waits means that there is no answer yet, because the decision may take long. It must be made by itself.
	Waits bool
}

// ErrInternal is the answer to a request whose decision a panic has ended.
var ErrInternal = &Error{Code: Internal, Reason: "internal error"}

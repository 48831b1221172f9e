package authz

import (
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Checked is a request and the answer of a transport, for logs and traces. None of it may be changed or kept.
type Checked struct {
	Request  *Request
	Decision *Decision
	// Query is the query for the limiter, and Result is its answer. They are nil if no limit was asked.
	Query  *ratelimit.Query
	Result *ratelimit.Result
	// Status is the HTTP status of the refusal, 0 if the request is allowed.
	Status int
	// DroppedHeaders counts the headers that could not be sent.
	DroppedHeaders int
	// Took is the time from the request to the answer.
	Took time.Duration
}

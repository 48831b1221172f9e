// Package reply words what a client sees of a decision: rate limit headers on every response, and the status, headers
// and body of a denial. Envoy passes them on unchanged. See [Reason], [Headers.Add] and [AppendProblem].
package reply

// Package reply makes what a client sees of a decision: rate limit headers on every response, and the body of a
// denial. Envoy passes both on unchanged. See [Headers.Add] and [AppendProblem].
package reply

// Package flow is the way of a request. The calls that one read of a connection has completed are one batch, which has
// all memory that they need until they are answered:
//
//	read -> begin: codec, Begin, Plan -> Store.Start -> resume -> finish: Finish, codec -> write
//	                                        ^             |
//	                                        \- next round -/
//
// A call by grpc-go or over HTTP is a batch of one. So is a check whose token waits for the keys of its issuer. Spans,
// the decision log and the metrics of calls hang on this way once. A panic fails the call that caused it and no other.
package flow

// Package guard bounds the connections, memory and time that the clients of a port can take. A [Listener] wraps another
// listener. It reads what passes over HTTP/1. The native server of HTTP/2 reports what its requests hold ([Conn]).
// The servers bound one message, one header list or the streams of one connection, but not their sum.
//
// When a bound of [Config] is reached, the guard cuts requests or connections of the source address that holds the
// most. So a client that takes too much hurts only itself, and a new connection is always accepted.
package guard

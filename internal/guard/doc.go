// Package guard bounds the connections, memory and time that the clients of a port can take. A [Listener] wraps another
// listener and reads what passes: frames of HTTP/2, or requests and answers of HTTP/1. The servers behind it bound one
// message, one header list or the streams of one connection, but not their sum.
//
// When a bound of [Config] is reached, the guard cuts requests or connections of the source address that holds the
// most. So a client that takes too much hurts only itself. A new connection, such as that of a probe, is always
// accepted.
package guard

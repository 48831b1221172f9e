// Package h2unary serves unary gRPC methods over HTTP/2. It knows no messages and no services: it passes the bytes of
// requests to a function, and sends the bytes of answers.
//
// One goroutine reads each connection. All requests that one read completes are passed to [Config.Serve] together, with
// their messages in the buffer of the read. Their answers leave in one write. That is why it is fast: a busy connection
// costs two system calls for many requests, and no goroutine is woken. A request that has to wait is answered later,
// from another goroutine, and delays no other.
//
// This is the path of a request through the files. read.go fills a buffer, and receive.go takes frames from it.
// block.go, hpack.go and head.go turn its header block into a head. message.go collects its message. call.go has the
// call that Serve answers. answer.go and output.go encode the answer, and write.go writes it. budget.go, sweep.go and
// the guard of the listener bound what a client can take.
package h2unary

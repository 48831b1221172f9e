// Package loadgen sends requests to a rate limit service or an ext_authz service over HTTP/2, as Envoy does. It
// measures how many are answered, how fast, and what they cost the server and its Redis.
//
// A lane keeps one connection busy. One goroutine reads the answers of a connection, writes the next requests, and
// makes one system call for all of one read. So the generator takes less CPU than the servers that it measures. A
// client of grpc-go would take more for a request than the service.
package loadgen

// Package unary serves calls of Envoy's services over grpc-go, with messages as bytes. See [Register] and [Codec].
package unary

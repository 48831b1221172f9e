// Package grpcgo serves a flow over grpc-go (GRPC_TRANSPORT=grpc-go). It is the reference for the native transport
// (internal/h2unary), which has bounds that grpc-go does not have: see docs/reference/settings.md.
package grpcgo

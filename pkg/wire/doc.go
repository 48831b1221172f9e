// Package wire reads and writes the protobuf messages of Envoy without the generated code. The generated code refuses
// text that is not UTF-8, so a client could make calls fail, and Envoy might allow its requests. See [Read], [Begin].
package wire

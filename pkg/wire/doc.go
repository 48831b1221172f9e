// Package wire reads and writes the protobuf messages of Envoy without the generated code. The generated code refuses
// text that is not UTF-8. A client of Envoy could send such a header: the call would fail, and Envoy might allow the
// request. See [Read] and [Begin].
package wire

package wire

// Code is a gRPC status code (google.rpc.Code).
type Code uint32

// The codes that the services return.
const (
	OK                Code = 0
	InvalidArgument   Code = 3
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Internal          Code = 13
	Unavailable       Code = 14
)

// Error is why a call has no answer.
type Error struct {
	Code   Code
	Reason string
}

func (e *Error) Error() string { return e.Reason }

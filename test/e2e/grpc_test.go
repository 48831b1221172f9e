package e2e

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// invoke makes a call with a gRPC client. The pairs are its metadata.
func (p *proxy) invoke(t *testing.T, method string, pairs ...string) *status.Status {
	t.Helper()
	// Retries of the client would hide the first answer.
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), pairs...)
	return status.Convert(conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty)))
}

func testAuthzGRPC(t *testing.T, s *shop) {
	const method = "/few/Say"
	bearer := s.issuer.bearer(t, claims{"sub": "grpc"})
	if got := s.invoke(t, method); got.Code() != codes.Unauthenticated || got.Message() == "" {
		t.Errorf("without a credential: got %v, want UNAUTHENTICATED (16) and a message", got)
	}
	if got := s.invoke(t, method, "authorization", "Bearer x"); got.Code() != codes.Unauthenticated ||
		got.Message() == "" {
		t.Errorf("with an invalid credential: got %v, want UNAUTHENTICATED (16) and a message", got)
	}
	for i := range 3 {
		if got := s.invoke(t, method, bearer[0], bearer[1]); got.Code() != codes.OK {
			t.Fatalf("call %d: got %v, want OK", i+1, got)
		}
	}
	got := s.invoke(t, method, bearer[0], bearer[1])
	if got.Code() != codes.ResourceExhausted || got.Message() == "" {
		t.Errorf("over the limit: got %v, want RESOURCE_EXHAUSTED (8) and a message", got)
	}
	for _, d := range got.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			if after := retry.GetRetryDelay().AsDuration(); after < 19*time.Minute || after > 20*time.Minute {
				t.Errorf("over the limit: got a retry delay of %v, want 20 min less the duration of the test", after)
			}
			return
		}
	}
	t.Errorf("over the limit: got details %v, want RetryInfo", got.Details())
}

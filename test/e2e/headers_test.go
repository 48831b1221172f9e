package e2e

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// TestHeaders serves the rules and the settings of docs/headers.md and makes the requests of that page.
func TestHeaders(t *testing.T) {
	t.Parallel()
	const page = "docs/headers.md"
	root, _ := rulesDirectory(t, block(t, page, "yaml", "domain: sample"))
	exported, _ := strings.CutPrefix(strings.TrimSpace(block(t, page, "sh", "export")), "export ")
	service := startService(t, append(strings.Fields(exported), "RUNTIME_ROOT="+root)...)
	envoy := startEnvoy(t, service.grpcPort)
	for _, console := range blocks(t, page, "console") {
		envoy.checkExamples(t, console, nil)
	}
	a := envoy.do(t, get("/", [2]string{"x-user", "ann"}))
	if a.status != http.StatusForbidden || !strings.Contains(a.body, `"status":403,`) ||
		!strings.Contains(a.body, `"violated-policies":["core"]`) {
		t.Errorf("over a limit with status 403: got %d %s, want 403 in both", a.status, a.body)
	}
	// gRPC clients get RESOURCE_EXHAUSTED, whatever the status.
	got := envoy.invoke(t, "/shop.Shop/Buy", "x-user", "ann")
	if got.Code() != codes.ResourceExhausted || len(got.Details()) != 2 {
		t.Fatalf("a gRPC client over the same limit: got %v %v, want RESOURCE_EXHAUSTED and two details", got, got.Details())
	}
	for _, d := range got.Details() {
		if q, ok := d.(*errdetails.QuotaFailure); ok && (len(q.GetViolations()) != 1 ||
			q.GetViolations()[0].GetSubject() != "core") {
			t.Errorf("violations: got %v, want core only", q.GetViolations())
		}
	}
}

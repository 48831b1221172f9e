package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestBinariesOfRatelimit calls a service with mTLS by ratelimit_client and by extauthz client. The first has the flags
// of envoyproxy/ratelimit.
func TestBinariesOfRatelimit(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	root, _ := rulesDirectory(t, "domain: shop\n"+
		"descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2}}]\n")
	s := startService(t, "RUNTIME_ROOT="+root, "GRPC_SERVER_USE_TLS=true",
		"GRPC_SERVER_TLS_CERT="+c.file("tls.crt"), "GRPC_SERVER_TLS_KEY="+c.file("tls.key"),
		"GRPC_CLIENT_TLS_CACERT="+c.file("ca.crt"))
	address := testenv.Loopback(s.grpcPort)
	other := filepath.Join(t.TempDir(), "other.crt")
	testenv.NewAuthority(t).Write(t, other)
	const theirs, ours = " -grpc-use-tls -grpc-cert-file CERT -grpc-key-file KEY -grpc-server-ca-file ",
		" --tls --tls-cert CERT --tls-key KEY --tls-ca "
	for _, call := range []struct {
		name, args string
		code       int
		want       []string
	}{
		{"ratelimit_client", "-dial_string ADDRESS -domain shop -descriptors user=ann" + theirs + "CA", 0,
			[]string{"response: ", "overall_code:OK", "limit_remaining:1"}},
		{"extauthz", "client -o json --address ADDRESS --domain shop --descriptor user=ann" + ours + "CA", 0,
			[]string{`"overallCode":"OK"`}},
		{"ratelimit_client", "--dial_string=ADDRESS --domain=shop --descriptors=action=buy --descriptors=user=ann" +
			strings.ReplaceAll(theirs, " -", " --") + "CA", 0, []string{"overall_code:OVER_LIMIT", "statuses:{code:OK}"}},
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=bob --hits 3" + ours + "CA", 0,
			[]string{"OVER_LIMIT\nuser=bob:OVER_LIMIT,2of2in1yearleft,untilreset"}},
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=ann --tls --tls-ca CA", 1,
			[]string{"does not answer"}},
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=ann", 1,
			[]string{"whether the service has TLS"}},
		{"ratelimit_client", "-dial_string ADDRESS -domain shop -descriptors user=ann" + theirs + "OTHER", 1,
			[]string{"certificate signed by unknown authority"}},
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=ann --tls-name limits.example" + ours + "CA",
			1, []string{"limits.example"}},
	} {
		args := strings.NewReplacer("ADDRESS", address, "CA", c.file("ca.crt"), "OTHER", other, "CERT", c.file("envoy.crt"),
			"KEY", c.file("envoy.key")).Replace(call.args)
		code, out := runLink(t, call.name, strings.Fields(args)...)
		out = strings.ReplaceAll(out, " ", "") // protobuf's texts have spaces at random
		for _, want := range call.want {
			if code != call.code || !strings.Contains(out, strings.ReplaceAll(want, " ", "")) {
				t.Errorf("%s %s: exit code %d, want %d and %q in\n%s", call.name, args, code, call.code, want, out)
			}
		}
	}
}

// TestClient asks both services. With --hits 0 it charges nothing.
func TestClient(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3, name: per-user, algorithm: fixed_window}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: few, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 2}}
authz:
  anonymous: allow
  access: [{path: {prefix: /admin}, require: denied}]
  limits: [{actions: [{request_headers: {header: x-user, key: user}}]}]
`)
	s := startService(t, "RUNTIME_ROOT="+root, "RESPONSE_HEADERS=x")
	grpc, http := testenv.Loopback(s.grpcPort), testenv.Loopback(s.httpPort)
	const ann = "--domain shop --descriptor user=ann"
	for _, call := range []struct {
		address, args string
		code          int
		want          []string
	}{
		{grpc, ann + " --hits 0", 0,
			[]string{"OK\nuser=ann: OK, 3 of 3 in 1 year left", " (per-user)\n", "x-ratelimit-limit: 3\n"}},
		{grpc, ann + " --hits 0", 0, []string{"user=ann: OK, 3 of 3 in 1 year left"}},
		{grpc, "--domain shop --descriptor few=1", 0, []string{"few=1: OK, 1 of 2 in 5 minutes left"}},
		{grpc, ann, 0, []string{"user=ann: OK, 2 of 3 in 1 year left"}},
		{grpc, ann + " --hits 2 --descriptor usr=ann,a=b --descriptor free=1", 0,
			[]string{"user=ann: OK, 0 of 3", "\nusr=ann,a=b: no rule matches, so the request passes\n",
				"\nfree=1: OK, unlimited\n"}},
		{grpc, ann + " --hits 0", 0, []string{"OVER_LIMIT\nuser=ann: OVER_LIMIT, 0 of 3"}},
		{grpc, ann + " --hits 0 -o json", 0, []string{`"OVER_LIMIT"`}},
		{grpc, "--service ext_authz --domain shop --header x-user:bob", 0,
			[]string{"allowed\n", "to the client: x-ratelimit-remaining: 2\n"}},
		{grpc, "--service ext_authz --domain shop --header X-User:ann", 0,
			[]string{"denied: 429 Too Many Requests\n", "\nx-ratelimit-remaining: 0\n", "\n\n{"}},
		{grpc, "--service ext_authz --domain shop --path /admin/a", 0, []string{"denied: 403 Forbidden\n"}},
		{grpc, "--service ext_authz --domain shop -o json", 0, []string{`"okResponse"`}},
		{http, ann, 1, []string{http + " is an HTTP port: want the gRPC port of the service, which is GRPC_PORT (8081 by"}},
		{http, "--service ext_authz", 1, []string{" is an HTTP port"}},
		{grpc, "--service both", 2, []string{`--service "both": want ratelimit or ext_authz`}},
		{grpc, ann + " --service ext_authz", 2, []string{"--descriptor is for the service ratelimit"}},
		{grpc, ann + " --header a:b", 2, []string{"--header is for the service ext_authz"}},
		{grpc, "--service ext_authz --header a", 2, []string{"--header: want NAME:VALUE, or @FILE"}},
	} {
		args := append([]string{"client", "--address", call.address}, strings.Fields(call.args)...)
		code, out := runLink(t, "extauthz", args...)
		for _, want := range call.want {
			if code != call.code || !strings.Contains(out, want) {
				t.Errorf("client %s: exit code %d, want %d and %q in\n%s", call.args, code, call.code, want, out)
			}
		}
	}
}

// runLink runs the program by a link with this name.
func runLink(t *testing.T, name string, args ...string) (code int, out string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = []string{}
	cmd.WaitDelay = time.Minute
	text, err := cmd.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("%s: %v %v", name, err, exit)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

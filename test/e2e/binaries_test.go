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
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=ann" + ours + "CA", 0,
			[]string{`"overallCode":"OK"`}},
		{"ratelimit_client", "--dial_string=ADDRESS --domain=shop --descriptors=action=buy --descriptors=user=ann" +
			strings.ReplaceAll(theirs, " -", " --") + "CA", 0, []string{"overall_code:OVER_LIMIT", "statuses:{code:OK}"}},
		{"extauthz", "client --address ADDRESS --domain shop --descriptor user=bob --hits 3" + ours + "CA", 0,
			[]string{`"overallCode":"OVER_LIMIT"`}},
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

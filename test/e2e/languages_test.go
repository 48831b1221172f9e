package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestClients calls both transports with the gRPC libraries of Node.js and Python, which have nothing in common with
// Go's, nor with each other. Connections end every 200 ms for their age. No call is lost: one that meets such an end
// is sent again on the next connection. Node's library does so only once, so a connection must not end at its begin.
func TestClients(t *testing.T) {
	t.Parallel()
	const want = "allowed: 1000\n70 kB: 0801\ncompressed: 0801\nmalformed: 13 malformed protobuf message\nunknown: 12\n" +
		"health: 0801\nwatch: 0801\n"
	tools := filepath.Join(testenv.RepoRoot(t), ".tools")
	root, _ := rulesDirectory(t, "domain: shop\ndescriptors: [{key: user, rate_limit: "+
		"{unit: hour, requests_per_unit: 100000}}]\n")
	for _, transport := range []string{"grpc-go", "native"} {
		s := startService(t, "RUNTIME_ROOT="+root, "GRPC_TRANSPORT="+transport, "GRPC_MAX_CONNECTION_AGE=200ms")
		for _, command := range [][]string{
			{"node", "testdata/client.js"}, {filepath.Join(tools, "venv", "bin", "python"), "testdata/client.py"},
		} {
			t.Run(transport+" "+filepath.Base(command[0]), func(t *testing.T) {
				t.Parallel()
				client := exec.CommandContext(t.Context(), command[0], command[1], testenv.Loopback(s.grpcPort))
				client.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(tools, "npm", "node_modules"))
				var stderr strings.Builder
				client.Stderr = &stderr
				out, err := client.Output()
				if err != nil {
					t.Fatalf("%v\n%s", err, stderr.String())
				}
				if d := cmp.Diff(want, string(out)); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

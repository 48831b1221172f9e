package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestNodeClient calls both transports with the gRPC library of Node.js, which has nothing in common with Go's.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	const want = "allowed: 1000\n70 kB: 0801\nmalformed: 13 malformed protobuf message\nunknown: 12\nhealth: 0801\n" +
		"watch: 0801\n"
	root, _ := rulesDirectory(t, "domain: shop\ndescriptors: [{key: user, rate_limit: "+
		"{unit: hour, requests_per_unit: 100000}}]\n")
	for _, transport := range []string{"grpc-go", "native"} {
		s := startService(t, "RUNTIME_ROOT="+root, "GRPC_TRANSPORT="+transport)
		node := exec.CommandContext(t.Context(), "node", "testdata/client.js", testenv.Loopback(s.grpcPort))
		node.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(testenv.RepoRoot(t), ".tools", "npm", "node_modules"))
		var stderr strings.Builder
		node.Stderr = &stderr
		out, err := node.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", transport, err, stderr.String())
		}
		if d := cmp.Diff(want, string(out)); d != "" {
			t.Errorf("%s: %s", transport, d)
		}
	}
}

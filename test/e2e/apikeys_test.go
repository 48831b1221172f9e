package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// apiKeys is a store of API keys. Its environment configures `extauthz keys` and the service.
type apiKeys struct{ environment []string }

const serverSecret = "API_KEY_SECRET=the server secret of the end-to-end tests"

// keysInFile returns a store in a file, which already has one key.
func keysInFile(t *testing.T) *apiKeys {
	t.Helper()
	k := &apiKeys{[]string{serverSecret, "API_KEYS_FILE=" + filepath.Join(t.TempDir(), "keys.jsonl")}}
	k.create(t, "--owner", "first")
	return k
}

// keysInRedis returns a store in a Redis.
func keysInRedis(addr string) *apiKeys {
	return &apiKeys{[]string{serverSecret, "REDIS_URL=redis://" + addr, "REDIS_TIMEOUT=" + longTimeout}}
}

// create creates a key.
func (k *apiKeys) create(t *testing.T, args ...string) (key string) {
	t.Helper()
	return k.run(t, append([]string{"create"}, args...)...)
}

// run runs a subcommand of `extauthz keys` and returns its output to stdout.
func (k *apiKeys) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"keys"}, args...)...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = k.environment, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("extauthz keys %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// keyID returns the id of a key, with which `extauthz keys` rotates and revokes it. A key has the form
// ea_<id>_<secret>.
func keyID(t *testing.T, key string) string {
	t.Helper()
	parts := strings.Split(key, "_")
	if len(parts) != 3 {
		t.Fatalf("%q does not have the form of a key", key)
	}
	return parts[1]
}

package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// apiKeys is where API keys are, as `extauthz keys` and the service are told by their environment.
type apiKeys struct{ environment []string }

const serverSecret = "API_KEY_SECRET=the server secret of the end-to-end tests"

// keysInFile has API keys in a file, which begins with one that nobody knows.
func keysInFile(t *testing.T) *apiKeys {
	t.Helper()
	k := &apiKeys{[]string{serverSecret, "API_KEYS_FILE=" + filepath.Join(t.TempDir(), "keys.jsonl")}}
	k.create(t, "--owner", "nobody")
	return k
}

// keysInRedis has them in a Redis.
func keysInRedis(addr string) *apiKeys {
	return &apiKeys{[]string{serverSecret, "REDIS_URL=redis://" + addr, "REDIS_TIMEOUT=" + longTimeout}}
}

// create makes a key.
func (k *apiKeys) create(t *testing.T, args ...string) (key string) {
	t.Helper()
	return k.run(t, append([]string{"create"}, args...)...)
}

// run runs a subcommand of `extauthz keys` and returns what it prints to stdout.
func (k *apiKeys) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"keys"}, args...)...)
	var complaint bytes.Buffer
	cmd.Env, cmd.Stderr = k.environment, &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("extauthz keys %s: %v\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return strings.TrimSpace(string(out))
}

// keyID is the public part of a key, by which it is rotated and revoked: ea_<id>_<secret>.
func keyID(t *testing.T, key string) string {
	t.Helper()
	parts := strings.Split(key, "_")
	if len(parts) != 3 {
		t.Fatalf("%q has not the form of a key", key)
	}
	return parts[1]
}

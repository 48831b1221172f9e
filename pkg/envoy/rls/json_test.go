package rls_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestJSONIsCompact: the answer of /json has no white space but its last newline. protojson alone adds spaces, in
// about half of all builds.
func TestJSONIsCompact(t *testing.T) {
	server := newFlow(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}]", nil)
	_, text := postJSON(server, `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`)
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSuffix(text, "\n"); got != compact.String() || !strings.Contains(got, `"limitRemaining":8`) {
		t.Errorf("got %s\nwant %s", got, &compact)
	}
}

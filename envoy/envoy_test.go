// Package envoy holds a sample configuration of Envoy.
package envoy

import (
	"os"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// What the sample does is tested in test/e2e, with the service behind it.
func TestSampleIsValid(t *testing.T) {
	config, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.ValidateEnvoy(t, string(config)); err != nil {
		t.Error(err)
	}
}

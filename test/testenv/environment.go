package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Setenv sets variables until the test ends, and removes all others but those that programs need. STRICT_ENVIRONMENT
// would refuse those of the developer's machine.
func Setenv(t testing.TB, variables map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name) {
			t.Setenv(name, "")    // which sets it again when the test ends
			_ = os.Unsetenv(name) // the name is valid
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

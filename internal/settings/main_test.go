package settings

import (
	"os"
	"strings"
	"testing"
)

// TestMain removes all variables but those of the platform.
func TestMain(m *testing.M) {
	for name := range currentEnvironment() {
		if !ofPlatform(name) {
			_ = os.Unsetenv(name) // the name is valid
		}
	}
	os.Exit(m.Run())
}

// parsed returns variables that are separated by spaces.
func parsed(environ string) environment {
	e := environment{}
	for _, pair := range strings.Fields(environ) {
		name, value, _ := strings.Cut(pair, "=")
		e[name] = value
	}
	return e
}

// readWith reads the settings from variables, which it then removes.
func readWith(t *testing.T, variables environment) (s *Settings, err error) {
	t.Helper()
	t.Run("read", func(t *testing.T) {
		for name, value := range variables {
			t.Setenv(name, value)
		}
		s, err = Read()
	})
	return s, err
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/command"
)

// TestMan checks that each subcommand has a manual page.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if code := run(t, nil, "man "+dir, "", &out, &out); code != command.ExitOK || out.Len() > 0 {
		t.Fatalf("exit code %d\n%s", code, &out)
	}
	for page, want := range map[string]string{
		"extauthz.1": "extauthz-check(1)", "extauthz-check.1": "sarif", "extauthz-keys-create.1": "--expires",
		"extauthz-health.1": "--timeout",
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(strings.ReplaceAll(string(text), `\-`, "-"), want) {
			t.Errorf("%s: %v, want %q in\n%s", page, err, want, text)
		}
	}
}

package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme keeps the table of settings in README.md the one that the code has; `make readme` writes it.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), settingsTable()) {
		t.Errorf("README.md does not have the settings as they are; run make readme. Want:\n%s", settingsTable())
	}
}

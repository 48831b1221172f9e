package main

import (
	"os"
	"strings"
	"testing"
)

// TestSettingsPage keeps the table of docs/reference/settings.md the one that the code has; `make readme` writes it.
func TestSettingsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), settingsTable()) {
		t.Errorf("docs/reference/settings.md does not have the settings as they are; run make readme. Want:\n%s", settingsTable())
	}
}

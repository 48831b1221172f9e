package settings

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/variables.txt
var variables string

// TestVariables compares the variables that the service reads with a list, so that none is added or lost by chance.
func TestVariables(t *testing.T) {
	got, want := Names(), strings.Fields(variables)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testdata/variables.txt (-want +got):\n%s", diff)
	}
}

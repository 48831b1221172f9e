package testenv

import (
	"fmt"
	"os/exec"
	"testing"
)

func TestProgram(t *testing.T) {
	for _, c := range []struct {
		name, script string
		succeeds     bool
	}{
		{"exits with 0", `trap 'exit 0' TERM`, true},
		{"exits with 3", `trap 'exit 3' TERM`, false},
		{"is ended by the signal", ``, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := exec.Command("sh", "-c", c.script+"\necho begun; while :; do sleep 0.01; done")
			p := Start(t, script, func() error { return nil })
			Eventually(t, func() error {
				if got := p.Output(); got != "begun\n" {
					return fmt.Errorf("the script has printed %q", got)
				}
				return nil
			}, "the script to begin")
			if err := p.Terminate(); (err == nil) != c.succeeds {
				t.Errorf("Terminate: %v", err)
			}
		})
	}
}

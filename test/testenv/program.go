package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Program is a program that a test runs as its users do.
type Program struct {
	t      testing.TB
	proc   *process
	killed bool // by Kill
}

// Start starts a program and returns after ready has returned nil. At the end of the test the program is killed.
func Start(t testing.TB, cmd *exec.Cmd, ready func() error) *Program {
	t.Helper()
	p := &Program{t: t, proc: startProcess(t, cmd)}
	p.proc.awaitReady(t, ready)
	return p
}

// Terminate sends SIGTERM and waits until the program has ended. It returns an error unless the exit status is 0.
func (p *Program) Terminate() error {
	p.t.Helper()
	if p.killed {
		return nil
	}
	p.proc.signal(syscall.SIGTERM)
	if err := await(nil, p.proc.ended); err != nil {
		return fmt.Errorf("after SIGTERM: %w", err)
	}
	if state := p.proc.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("after SIGTERM: %v, want exit status 0", state)
	}
	return nil
}

// Kill kills the program (SIGKILL) and returns after it has ended. Terminate then does nothing.
func (p *Program) Kill() {
	p.killed = true
	p.proc.kill()
}

// Pause stops the program (SIGSTOP): the system accepts connections and requests for it, and nothing answers them.
func (p *Program) Pause() {
	p.t.Helper()
	p.proc.pause(p.t)
}

// Resume continues a paused program.
func (p *Program) Resume() { p.proc.signal(syscall.SIGCONT) }

// Output returns what the program has printed so far, to stdout and stderr.
func (p *Program) Output() string { return p.proc.out.String() }

// PeakMemory returns the program's largest resident memory so far, in bytes (VmHWM of Linux).
func (p *Program) PeakMemory() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.proc.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	p.t.Fatalf("no VmHWM in\n%s", status)
	return 0
}

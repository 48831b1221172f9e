package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Program is a program that a test runs as its users do. Its output is kept, to be logged if the test fails.
type Program struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    Output
	done   chan struct{} // closed when the program has ended and cmd.ProcessState is set
	killed bool          // by Kill
}

// Start starts a program and returns after ready has returned nil. The test fails if the program ends before, or after
// too long a wait. At the end of the test the program is killed.
func Start(t testing.TB, cmd *exec.Cmd, ready func() error) *Program {
	t.Helper()
	p := &Program{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = 5 * time.Second // for a grandchild that keeps the pipe open
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the last output of %s:\n%s", cmd, p.out.tail())
		}
	})
	if err := await(p.done, ready); err != nil {
		t.Fatalf("waited for %s to answer: %v", cmd, err)
	}
	return p
}

// Terminate sends SIGTERM and waits until the program has ended. It returns an error unless the exit status is 0.
func (p *Program) Terminate() error {
	p.t.Helper()
	if p.killed {
		return nil
	}
	p.signal(syscall.SIGTERM)
	if err := await(nil, p.ended); err != nil {
		return fmt.Errorf("after SIGTERM: %w", err)
	}
	if state := p.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("after SIGTERM: %v, want exit status 0", state)
	}
	return nil
}

// Kill kills the program (SIGKILL) and returns after it has ended. Terminate then does nothing.
func (p *Program) Kill() {
	p.killed = true
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Pause stops the program (SIGSTOP): the system accepts connections and requests for it, and nothing answers them. On
// Linux, Pause returns only after the program has stopped.
func (p *Program) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", p.PID())
	Eventually(p.t, func() error {
		line, err := os.ReadFile(stat)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || bytes.Contains(line, []byte(") T ")) {
			return err
		}
		return errors.New("the process still runs")
	}, fmt.Sprintf("%s to stop", p.cmd))
}

// Resume continues a paused program, which then handles what it received in the meantime.
func (p *Program) Resume() { p.signal(syscall.SIGCONT) }

// Output returns what the program has printed so far, to stdout and stderr.
func (p *Program) Output() string { return p.out.String() }

// PID returns the number of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// signal sends sig. It does nothing if the program has ended.
func (p *Program) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// ended returns nil if the program has ended.
func (p *Program) ended() error {
	select {
	case <-p.done:
		return nil
	default:
		return errors.New("the process still runs")
	}
}

// Output collects the output of a process. It is safe for concurrent use; the zero value is ready.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String returns all output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// tail returns the last lines of the output.
func (o *Output) tail() string {
	const most = 80
	lines := strings.Split(strings.TrimRight(o.String(), "\n"), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return strings.Join(lines, "\n")
}

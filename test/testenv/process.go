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

// process is a program that was started for a test. Its output is kept, to be logged if the test fails.
type process struct {
	cmd  *exec.Cmd
	out  Output
	done chan struct{} // closed when the process has ended and cmd.ProcessState is set
}

// startProcess starts a program, which is killed at the end of the test.
func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
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
		p.kill()
		if t.Failed() {
			t.Logf("the last output of %s:\n%s", cmd, p.out.tail())
		}
	})
	return p
}

// awaitReady waits until ready returns nil. The test fails if the process ends before, or after too long a wait.
func (p *process) awaitReady(t testing.TB, ready func() error) {
	t.Helper()
	if err := await(p.done, ready); err != nil {
		t.Fatalf("waited for %s to answer: %v", p.cmd, err)
	}
}

// signal sends sig. It does nothing if the process has ended.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// pause stops the process. On Linux, it returns only after the process has stopped.
func (p *process) pause(t testing.TB) {
	t.Helper()
	p.signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	Eventually(t, func() error {
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

// ended returns nil if the process has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
		return nil
	default:
		return errors.New("the process still runs")
	}
}

// kill kills the process and returns after it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
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

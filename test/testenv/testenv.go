package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// patience is the longest wait of this package. Only a failing test waits that long. Envoy's first start can take
// half a minute on a slow and busy machine with the race detector.
const patience = 2 * time.Minute

// FreePort returns a TCP port of 127.0.0.1 on which no process listens, and reserves it until the test ends. The port
// is below those that systems use for outgoing connections, so it stays free while the test has no server on it.
func FreePort(t testing.TB) int {
	t.Helper()
	const first, count, tries = 15000, 15000, 100
	for range tries {
		port := first + rand.IntN(count)
		if reserve(t, port) {
			return port
		}
	}
	t.Fatalf("no free port between %d and %d in %d tries", first, first+count, tries)
	return 0
}

// reserve reports whether a TCP port is free. If so, other tests cannot reserve the port until this test ends. The
// lock is the UDP port of the same number: it works across processes, and the system releases it when the process
// ends.
func reserve(t testing.TB, port int) bool {
	t.Helper()
	lock, err := net.ListenPacket("udp", Loopback(port))
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp", Loopback(port))
	if err != nil {
		_ = lock.Close()
		return false
	}
	if err := l.Close(); err != nil {
		t.Fatalf("close the listener that tried port %d: %v", port, err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return true
}

// Loopback returns the address "127.0.0.1:<port>".
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Eventually waits until cond returns nil. After two minutes it fails the test with what, and the last error of cond.
func Eventually(t testing.TB, cond func() error, what string) {
	t.Helper()
	if err := await(nil, cond); err != nil {
		t.Fatalf("waited for %s: %v", what, err)
	}
}

// errStopped means that the process ended before the condition was fulfilled.
var errStopped = errors.New("the process ended")

// await calls cond until it returns nil, until patience has passed, or until stopped is closed.
func await(stopped <-chan struct{}, cond func() error) error {
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		if time.Since(begin) > patience {
			return fmt.Errorf("not within %v: %w", patience, err)
		}
		select {
		case <-stopped:
			return errStopped
		case <-tick.C:
		}
	}
}

// Binary returns the path of a program. It is the value of the environment variable override if that is set, else the
// file in .tools/bin, which make installs, else the program on PATH.
func Binary(t testing.TB, name, override string) string {
	t.Helper()
	if path := os.Getenv(override); override != "" && path != "" {
		return path
	}
	path := filepath.Join(RepoRoot(t), ".tools", "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is neither in .tools/bin nor on PATH: run the test with make, which installs it", name)
	}
	return path
}

// RepoRoot returns the directory of the project's go.mod, also for tests in other modules of the repository.
func RepoRoot(t testing.TB) string {
	t.Helper()
	root, err := repoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// RepoFile returns the content of a file. The path is relative to the root of the repository.
func RepoFile(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(RepoRoot(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func repoRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case bytes.HasPrefix(mod, []byte("module github.com/extauthz/extauthz\n")):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("no go.mod of github.com/extauthz/extauthz in %s or above", start)
		}
	}
}

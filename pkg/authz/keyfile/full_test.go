//go:build unix

package keyfile

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFullDisk: a change for which the disk has no space leaves the file as it was, wherever the space ends. The test
// runs itself as a process with a limit on the size of files, which stands for a full disk.
func TestFullDisk(t *testing.T) {
	const fileVariable, limitVariable = "TEST_FULL_DISK_FILE", "TEST_FULL_DISK_LIMIT"
	if path := os.Getenv(fileVariable); path != "" {
		limit, err := strconv.ParseUint(os.Getenv(limitVariable), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
		if err := Add(path, record(t, "dddddddd", "dan")); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("a change without space: %v", err)
		}
		return
	}
	path := newFile(t)
	before := content(t, path)
	for _, more := range []int{0, 1, len(endMark), 100} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
		cmd.Env = append(os.Environ(), fileVariable+"="+path, limitVariable+"="+strconv.Itoa(len(before)+more))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%d bytes left: %v\n%s", more, err, out)
		}
		if diff := cmp.Diff(before, content(t, path)); diff != "" {
			t.Errorf("%d bytes left: the file has changed: %s", more, diff)
		}
	}
}

package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent makes this process receive SIGTERM when its parent ends, as `go run` does when it is killed.
func endWithParent() {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0) // without it, only an orphan is possible
}

// endWithUs makes the kernel kill a child when this process ends, even if that is killed.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

package testenv

import "syscall"

// dieWithParent lets the kernel kill the program if the test is killed before its cleanup.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

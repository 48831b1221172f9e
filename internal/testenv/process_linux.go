package testenv

import "syscall"

// dieWithParent lets the kernel end a program whose test was killed before its cleanup ran.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

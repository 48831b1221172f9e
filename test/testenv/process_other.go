//go:build !linux

package testenv

import "syscall"

// dieWithParent has no effect on systems other than Linux: a killed test may leave its programs running.
func dieWithParent() *syscall.SysProcAttr { return nil }

//go:build !linux

package testenv

import "syscall"

// dieWithParent is Linux's alone: elsewhere a killed test may leave its programs behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

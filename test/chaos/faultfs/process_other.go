//go:build !linux

package faultfs

import "syscall"

func processAttributes() *syscall.SysProcAttr { return nil }

package faultfs

import "syscall"

// processAttributes puts faultfsd into a process group of its own: a signal to the
// test's group must not end the disks before the programs that use them.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

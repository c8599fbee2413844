package faultfs

import "syscall"

// processAttributes puts faultfsd into a group of its own: what is sent to the
// group of the test must not take the disks away before the programs on them.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

package cluster

import "syscall"

// processAttributes puts a process into a group of its own, so that a ctrl-C on
// the terminal reaches only the program that started it, and has the kernel kill
// it should that program die.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

//go:build !linux

package hook

import "os/exec"

// setProcessGroup does nothing: process groups are not portable, and killGroup kills
// only the program itself.
func setProcessGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

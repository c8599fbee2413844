//go:build !linux

package notify

import "os/exec"

// setProcessGroup does nothing: process groups are not portable, and killGroup kills
// only the command itself.
func setProcessGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

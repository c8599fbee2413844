//go:build !linux

package notify

import "os/exec"

// inGroup has no portable form: only the command itself is killed.
func inGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// maxStderr is how much of a command's standard error is logged, in bytes from its
// end.
const maxStderr = 1 << 10

// runCommand runs the command with a message on standard input and a minimal
// environment. It kills the command's process group when the command ends.
func (d *deliverer) runCommand(ctx context.Context, m message) result {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	// Pdeathsig kills the command when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stderr tailBuffer
	cmd := exec.CommandContext(ctx, d.cfg.Hooks.DeadLetterCommand) //nolint:gosec // the operator's own setting
	cmd.Stdin, cmd.Stderr = bytes.NewReader(m.body), &stderr
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8",
		"DTASK_EVENT=" + m.event, "DTASK_WEBHOOK_ID=" + m.id,
	}
	setProcessGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = 200 * time.Millisecond
	err := cmd.Run()
	if cmd.Process != nil {
		_ = killGroup(cmd) // processes that it left behind
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return result{kind: resultDelivered} // exit code 0; the processes that held its pipes open are killed
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return result{kind: resultRetry, reason: fmt.Sprintf("command exceeded its timeout of %v", commandTimeout)}
	}
	return result{kind: resultRetry, reason: strings.TrimSpace(err.Error() + ": " + stderr.String())}
}

// A tailBuffer keeps the last maxStderr bytes.
type tailBuffer struct{ b []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - maxStderr; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string { return strings.ToValidUTF8(strings.TrimSpace(string(t.b)), "") }

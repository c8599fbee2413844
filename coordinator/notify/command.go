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

// maxSaid is how much of a command's complaint is logged, in bytes: its end.
const maxSaid = 1 << 10

// runCommand hands a message to the command. It knows no more of this process
// than a few variables, and nothing that it started outlives it in its process
// group.
func (d *deliverer) runCommand(ctx context.Context, m message) result {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	// The kernel ends the command with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var said tail
	cmd := exec.CommandContext(ctx, d.cfg.Hooks.LetterCommand) //nolint:gosec // the operator's own setting
	cmd.Stdin, cmd.Stderr = bytes.NewReader(m.body), &said
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8",
		"DTASK_EVENT=" + m.event, "DTASK_WEBHOOK_ID=" + m.id,
	}
	inGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = 200 * time.Millisecond
	err := cmd.Run()
	if cmd.Process != nil {
		_ = killGroup(cmd) // what it left behind; mostly nothing
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return result{verdict: delivered} // it exited 0; what held its pipes open is gone
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return result{verdict: again, why: fmt.Sprintf("the command took more than %v", commandTimeout)}
	}
	return result{verdict: again, why: strings.TrimSpace(err.Error() + ": " + said.String())}
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - maxSaid; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(strings.TrimSpace(string(t.b)), "") }

// Package hook runs the programs that an operator names in flags, such as
// --dead-letter-command: in /, with a minimal environment, and with all processes that they
// start ended when they end.
package hook

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// killDelay is how long a process that has left the program's process group may hold its
// standard error open.
const killDelay = 200 * time.Millisecond

// A Program is one run of a program.
type Program struct {
	Path  string // absolute
	Args  []string
	Env   []string // NAME=value, beyond PATH, HOME and LANG
	Stdin []byte
	// MaxStderr is how many bytes of the end of its standard error Run returns.
	MaxStderr int
}

// Run runs the program until it ends, or ctx is done, and returns the end of its standard
// error. Then it kills the program's process group. The error is nil for exit code 0.
func (p *Program) Run(ctx context.Context) (stderr string, err error) {
	// Pdeathsig kills the program when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tail := tailBuffer{limit: p.MaxStderr}
	cmd := exec.CommandContext(ctx, p.Path, p.Args...) //nolint:gosec // the operator's own setting
	cmd.Stdin, cmd.Stderr = bytes.NewReader(p.Stdin), &tail
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8"}, p.Env...)
	setProcessGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = killDelay
	err = cmd.Run()
	if cmd.Process != nil {
		_ = killGroup(cmd) // processes that it left behind
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // exit code 0; the processes that held its pipes open are killed
	}
	return tail.String(), err
}

// A tailBuffer keeps the last bytes, up to its limit.
type tailBuffer struct {
	limit int
	b     []byte
}

// Write implements io.Writer.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - t.limit; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

// String returns the bytes as UTF-8: the first one may be within a character.
func (t *tailBuffer) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "")) }

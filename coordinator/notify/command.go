package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dtask/dtask/internal/hook"
)

// maxStderr is how much of a command's standard error is logged, in bytes from its
// end.
const maxStderr = 1 << 10

// runCommand runs the command with a message on standard input.
func (d *deliverer) runCommand(ctx context.Context, m message) result {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	command := hook.Program{
		Path: d.cfg.Hooks.DeadLetterCommand, Stdin: m.body, MaxStderr: maxStderr,
		Env: []string{"DTASK_EVENT=" + m.event, "DTASK_WEBHOOK_ID=" + m.id},
	}
	stderr, err := command.Run(ctx)
	switch {
	case err == nil:
		return result{kind: resultDelivered}
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return result{kind: resultRetry, reason: fmt.Sprintf("command exceeded its timeout of %v", commandTimeout)}
	}
	return result{kind: resultRetry, reason: strings.TrimSpace(err.Error() + ": " + stderr)}
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/hook"
)

const (
	// backupCommandReserve is how long before the end of a run its command is killed at the
	// latest, so that the leader receives why the run failed.
	backupCommandReserve = 5 * time.Second
	// maxBackupStderr is how much of the end of the command's standard error is recorded. The
	// whole message has up to maxBackupError bytes.
	maxBackupStderr = 384
)

// errSlowCommand ends a command that would not end within the limit of its run.
var errSlowCommand = errors.New("it took too long")

// backupCommand returns what hands a backup of the schedule over to the operator's command;
// nil without one. It is a setting of this process, not of the schedule: who may set schedules
// must not be able to run programs as the user of dtaskd.
func (c *Config) backupCommand() func(ctx context.Context, added backup.Added) error {
	if c.BackupCommand == "" {
		return nil
	}
	return func(ctx context.Context, added backup.Added) error {
		limited := ctx
		if end, is := ctx.Deadline(); is {
			reserve := min(c.TimeScale.Scale(backupCommandReserve), time.Until(end)/2)
			var cancel context.CancelFunc
			limited, cancel = context.WithDeadlineCause(ctx, end.Add(-reserve), errSlowCommand)
			defer cancel()
		}
		command := hook.Program{
			Path: c.BackupCommand, Args: []string{added.State}, MaxStderr: maxBackupStderr,
			Env: []string{"DTASK_EVENT=backup", "DTASK_BACKUP_SEGMENT=" + added.Segment},
		}
		stderr, err := command.Run(limited)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() != nil:
			err = context.Cause(limited)
		}
		text := fmt.Sprintf("%s was written, but --backup-command failed: %v: %s", filepath.Base(added.State), err, stderr)
		return errors.New(strings.TrimSuffix(text, ": "))
	}
}

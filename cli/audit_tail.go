package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/audit"
)

// tailInterval is how often a followed audit log is read. Coordinators write it once a
// second.
const tailInterval = 500 * time.Millisecond

func newAuditTail(a *app) *cobra.Command {
	var dir string
	var n int
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail --data-dir DIR",
		Short: "Print the last lines of an audit log as they are",
		Long: `Print the last lines of the audit log in a data directory as they are: one JSON object
each. It needs no cluster. With --follow, it prints further lines until it is interrupted.`,
		Example: `  dtaskctl audit tail --data-dir /var/lib/dtask -n 20
  dtaskctl audit tail --data-dir /var/lib/dtask --follow | jq .who`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.auditFiles(dir); err != nil {
				return err
			}
			next, err := a.tailAudit(dir, 0, n)
			if err != nil || !follow {
				return err
			}
			return a.followAudit(cmd.Context(), dir, next)
		},
	}
	fl := cmd.Flags()
	bindDataDir(fl, &dir)
	bindP(fl, &n, "lines", "n", "10", "print the last `N` lines", integer[int](0, 1_000_000))
	fl.BoolVarP(&follow, "follow", "f", false, "print further lines as they are written")
	return cmd
}

// followAudit prints the lines from a number on as they are written.
func (a *app) followAudit(ctx context.Context, dir string, next uint64) error {
	tick := time.NewTicker(tailInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		var err error
		if next, err = a.tailAudit(dir, next, -1); err != nil {
			return err
		}
	}
}

// tailAudit prints the last n lines of a log that have a number of from or above, all of
// them if n is negative. It returns the number from which on others follow.
func (a *app) tailAudit(dir string, from uint64, n int) (next uint64, err error) {
	files, err := a.auditFiles(dir)
	if err != nil {
		return from, err
	}
	var list [][]byte
	next, err = audit.Lines(files, from, func(text []byte) {
		list = append(list, append([]byte(nil), text...))
		if n >= 0 && len(list) > 2*n {
			list = append(list[:0], list[len(list)-n:]...)
		}
	})
	if err != nil {
		return from, err
	}
	if n >= 0 {
		list = list[max(0, len(list)-n):]
	}
	for _, text := range list {
		if _, err := a.out.Write(text); err != nil {
			return from, err
		}
	}
	return next, nil
}

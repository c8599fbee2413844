package offline

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
)

// readBoth reads the whole backup, and writes the file from which the history file at path
// will import its jobs, while readState reads the state. It returns the number of these jobs.
// The file is read twice, at the same time: most of it is the history.
func readBoth(ctx context.Context, cfg RestoreConfig, b *openedBackup, path string, readState func(from *openedBackup, read func()) error) (jobs uint64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	keep := func() {
		group.Go(func() (err error) {
			jobs, err = keepHistory(ctx, cfg, b, path)
			return err
		})
	}
	b.sum.off = true // nobody asks for it
	state, err := b.again()
	if err != nil {
		return 0, err
	}
	read := func() {}
	if state != nil {
		keep()
	} else {
		state, read = b, keep // after the state, which comes first
	}
	group.Go(func() error { return readState(state, read) })
	err = group.Wait()
	return jobs, err
}

// keepHistory reads the rest of the backup, and keeps the jobs of its history for the import.
// It succeeds only if the whole backup is complete and unchanged.
func keepHistory(ctx context.Context, cfg RestoreConfig, b *openedBackup, path string) (jobs uint64, err error) {
	m := b.Manifest()
	if !b.history || m.Index == 0 {
		_, err := b.finish(nil)
		return 0, err
	}
	w, err := history.CreateImport(path, m.Index)
	if err != nil {
		return 0, err
	}
	_, err = b.finish(func(c backup.Chunk) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return w.Add(history.Chunk{
			Position: history.Position{Index: c.Index, Job: fsm.JobID(c.Job)}, Number: c.Number, Total: c.Total, Data: c.Data,
		})
	})
	if err != nil {
		w.Discard()
		return 0, err
	}
	jobs, dropped, err := w.Close()
	if err == nil && dropped > 0 {
		cfg.Logger.WarnContext(ctx, "the backup lacks parts of jobs that expired while it was saved; they are not restored", "jobs", dropped)
	}
	return jobs, err
}

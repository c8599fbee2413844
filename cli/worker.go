package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newWorker(a *app) *cobra.Command {
	return newNoun("worker", "List and drain workers",
		"  dtaskctl worker list\n  dtaskctl worker drain w1 --deadline 10m --reason \"new disk\" --wait",
		newWorkerList(a), newWorkerDrain(a), newWorkerUndrain(a))
}

// listWorkers lists up to f.Limit workers and reports whether there are more.
func listWorkers(ctx context.Context, c *client.Client, f client.WorkerFilter) (workers []*dtaskv1.Worker, more bool, err error) {
	// One worker more than the limit shows whether there are more.
	limit := f.Limit
	if limit > 0 {
		f.Limit++
	}
	workers, err = collect(c.Workers(ctx, f))
	if limit > 0 && len(workers) > limit {
		return workers[:limit], true, err
	}
	return workers, false, err
}

func workerView(w *dtaskv1.Worker) view {
	return view{doc: document.NewWorker(w), text: func(p *show.Printer) { p.Workers([]*dtaskv1.Worker{w}, false) }}
}

// workerError adds a hint to the error of an unknown worker.
func workerError(err error) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return withHint(err, "dtaskctl worker list shows the workers")
}

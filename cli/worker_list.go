package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newWorker(a *app) *cobra.Command {
	return newNoun("worker", "Look at the workers, and drain them", "  dtaskctl worker list\n  dtaskctl worker drain w1 --deadline 10m --reason \"new disk\" --wait",
		newWorkerList(a), newWorkerDrain(a), newWorkerUndrain(a))
}

func newWorkerList(a *app) *cobra.Command {
	var f client.WorkerFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the workers that the cluster knows",
		Long: `List the workers that the cluster knows, oldest first. Where there are more than
--limit, the last line says how to go on, and JSON has "more": true.`,
		Example: `  dtaskctl worker list
  dtaskctl worker list --name w1
  dtaskctl worker list --limit 1000 --after 1000
  dtaskctl worker list --limit 0 -o json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Limit < 0 {
				return &usageError{err: fmt.Errorf("--limit %d is negative", f.Limit), command: cmd.CommandPath()}
			}
			if _, err := strconv.ParseUint(f.After, 10, 32); f.After != "" && err != nil {
				return &usageError{err: fmt.Errorf("--after %q is no ID of a worker; give the number before its name", f.After), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			workers, more, err := listWorkers(cmd.Context(), c, f)
			if err != nil {
				return err
			}
			if a.quiet {
				ids := make([]string, 0, len(workers))
				for _, w := range workers {
					ids = append(ids, w.GetId())
				}
				return a.ids(ids)
			}
			doc := document.NewWorkers(workers, more)
			return a.print(doc, func(out io.Writer) error {
				if err := a.workerTable(out, workers); err != nil || !more {
					return err
				}
				if _, err := fmt.Fprintf(out, "… more: --after %s goes on here, --limit 0 lists all\n", workers[len(workers)-1].GetId()); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
				return nil
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Name, "name", "", "only the worker of this `NAME`")
	fl.StringVar(&f.After, "after", "", "only workers after the one with this `ID`")
	fl.IntVar(&f.Limit, "limit", 100, "at most `N` workers; 0 = all")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	return cmd
}

// listWorkers lists up to f.Limit workers, and tells whether there are more.
func listWorkers(ctx context.Context, c *client.Client, f client.WorkerFilter) (workers []*dtaskv1.Worker, more bool, err error) {
	limit := f.Limit
	if limit > 0 {
		f.Limit++
	}
	for w, err := range c.Workers(ctx, f) {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(workers) == limit {
			return workers, true, nil
		}
		workers = append(workers, w)
	}
	return workers, false, nil
}

// workerTable shows workers; the order to drain only if there is one.
func (a *app) workerTable(out io.Writer, workers []*dtaskv1.Worker) error {
	headings := []string{"ID", "NAME", "STATE", "RUNNING", "SINCE", "LABELS"}
	drains := slices.ContainsFunc(workers, func(w *dtaskv1.Worker) bool { return w.GetDrainUntil() != 0 })
	if drains {
		headings = append(headings, "DRAIN")
	}
	t := show.NewTable(a.paint(out), headings...)
	for _, w := range workers {
		since := w.GetUpSince()
		if w.GetState() == "down" {
			since = w.GetDownSince()
		}
		row := []string{
			w.GetId(), w.GetName(), w.GetState(), runningWords(w),
			show.Ago(since, a.now()), show.Labels(w.GetLabels()),
		}
		if drains {
			row = append(row, a.drainWords(w))
		}
		t.Row(row...)
	}
	return t.Write(out)
}

// runningWords tells how many attempts a worker holds.
func runningWords(w *dtaskv1.Worker) string {
	text := fmt.Sprintf("%d of %d", w.GetRunning(), w.GetSlots())
	if w.GetQueued() > 0 {
		text += fmt.Sprintf(", %d wait", w.GetQueued())
	}
	return text
}

// drainWords tells how long a worker still has and why it drains.
func (a *app) drainWords(w *dtaskv1.Worker) string {
	if w.GetDrainUntil() == 0 {
		return ""
	}
	text := "deadline passed"
	if left := time.UnixMilli(w.GetDrainUntil()).Sub(a.now()); left > 0 {
		text = show.Duration(left) + " left"
	}
	if w.GetDrainReason() != "" {
		text += ": " + w.GetDrainReason()
	}
	return text
}

package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newWorker(a *app) *cobra.Command {
	return newNoun("worker", "Look at the workers, and drain them", "  dtaskctl worker list\n  dtaskctl worker drain w1 --deadline 10m --reason \"new disk\" --wait",
		newWorkerList(a), newWorkerDrain(a), newWorkerUndrain(a))
}

func newWorkerList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the workers that the cluster knows",
		Example: `  dtaskctl worker list
  dtaskctl worker list -o json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			workers, err := c.Workers(cmd.Context())
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
			return a.print(show.WorkersOf(workers), func(out io.Writer) error {
				return a.workerTable(out, workers)
			})
		},
	}
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	return cmd
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

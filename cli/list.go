package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newList(a *app) *cobra.Command {
	var f client.JobFilter
	var order jobOrder
	var reverse bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first, including finished jobs from history. A coordinator whose
history was rebuilt fetches finished jobs from the others, and reports an incomplete
list until it has them ("incomplete" in JSON).

--sort orders all jobs that match the filters, and --limit applies after that. It reads
every match, so with many jobs use --since or other filters. Names, owners and states
are in ascending order, from pending to cancelled; other values have the latest or
largest first. Jobs without a value are last.

` + staleHelp,
		Example: `  dtaskctl list
  dtaskctl list --state running --state pending
  dtaskctl list --name nightly --label team=data --limit 10 -o json
  dtaskctl list -q --state failed
  dtaskctl list --since 24h --state failed
  dtaskctl list --since 24h --sort took --limit 10
  dtaskctl list --state running --sort started --reverse
  dtaskctl list --stale
  dtaskctl list --since 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z --limit 0`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if err := checkJobFilter(&f); err != nil {
				return view{}, err
			}
			incomplete := false
			f.Incomplete = func() { incomplete = true }
			f.Stale, f.Fresh = a.stale, a.noteFresh
			jobs, err := a.listJobs(ctx, c, f, order, reverse)
			if err != nil {
				return view{}, err
			}
			if incomplete && a.textOutput() {
				a.warn("The list is incomplete: this coordinator is still fetching finished jobs.")
			}
			if a.quiet {
				return view{}, a.printIDs(jobIDs(jobs))
			}
			return view{
				doc:  document.NewJobs(jobs, incomplete),
				text: func(p *show.Printer) { p.Jobs(jobs) },
			}, nil
		}),
	}
	fl := cmd.Flags()
	a.bindJobFilter(fl, &f, allJobStates)
	bindEnum(cmd, fl, &order, "sort", "", "order of the jobs by `KEY`", jobOrders...)
	fl.BoolVar(&reverse, "reverse", false, "reversed order")
	bindLimit(fl, &f.Limit, "jobs")
	a.bindStale(fl)
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print IDs only")
	return cmd
}

// listJobs lists the jobs that match f in an order.
func (a *app) listJobs(ctx context.Context, c *client.Client, f client.JobFilter, order jobOrder, reverse bool) ([]*dtaskv1.Job, error) {
	if order == orderID && !reverse {
		return collect(c.Jobs(ctx, f)) // as coordinators list them
	}
	return listSorted(ctx, c, f, order.comparison(reverse, a.now().UnixMilli()))
}

func jobIDs(jobs []*dtaskv1.Job) []string {
	ids := make([]string, 0, len(jobs))
	for _, j := range jobs {
		ids = append(ids, j.GetId())
	}
	return ids
}

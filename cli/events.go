package cli

import (
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newEvents(a *app) *cobra.Command {
	var f client.EventFilter
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happened to jobs, workers and the cluster",
		Long: `Print what happened to jobs, workers and the cluster, in the order of the log: jobs that
were submitted, retried or ended, tasks that failed, are retried or ended dead, workers that
came and went, leaders and feature levels. Completions of single tasks are not events;
dtaskctl watch prints those of a job. Users see the events of jobs in their namespaces.

Every coordinator keeps the last 100,000 events, and has the same ones at the same indexes.
With --since INDEX, another process can continue at any coordinator, without gaps or
duplicates. Coordinators that restart keep only what their log has since the last snapshot.

With -o json, every line is a document.`,
		Example: `  dtaskctl events
  dtaskctl events --follow --namespace etl
  dtaskctl events --since 1207 -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			last := f.After
			head := a.textOutput()
			for page, err := range c.Events(ctx, f) {
				if err != nil && ctx.Err() != nil && last > 0 {
					err = withHint(err, "to continue, run dtaskctl events --follow --since %d", last)
				}
				if errors.Is(err, client.ErrCompacted) {
					err = withHint(err, "run dtaskctl events without --since to see those that are kept, and dtaskctl list for the jobs")
				}
				if err != nil {
					return view{}, err
				}
				last = page.Index
				if err := a.printEvents(page.Events, head); err != nil {
					return view{}, err
				}
				head = head && len(page.Events) == 0
			}
			return view{}, nil
		}),
	}
	fl := cmd.Flags()
	bind(fl, &f.After, "since", "", "only events after this `INDEX` (0 = all that are kept)", integer[uint64](0, math.MaxInt64))
	bindNamespace(fl, &f.Namespace, "only events of jobs in the `NAMESPACE`")
	fl.BoolVarP(&f.Follow, "follow", "f", false, "continue with new events until interrupted")
	return cmd
}

// printEvents prints a line or a document for each event. head adds the headings before the
// first one.
func (o *output) printEvents(events []*dtaskv1.Event, head bool) error {
	for _, e := range events {
		doc := document.NewLogEvent(e)
		var err error
		switch o.format {
		case outputJSON:
			text, failed := document.Marshal(doc)
			err = o.write(append(text, '\n'), failed)
		case outputYAML:
			text, failed := show.YAML(doc)
			err = o.write(append([]byte("---\n"), text...), failed)
		case outputTable:
			err = o.print(view{doc: doc, text: func(p *show.Printer) { p.Event(e, head) }})
			head = false
		}
		if err != nil {
			return err
		}
	}
	return nil
}

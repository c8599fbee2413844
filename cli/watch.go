package cli

import (
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newWatch(a *app) *cobra.Command {
	var o client.WatchOptions
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Print every change of a job until it finishes",
		Long: `Print every change of a job and its tasks until the job finishes. The exit code is 0
even if the job failed. Changes within 100 ms may be merged, and running tasks are
shown as assigned unless they are at-most-once.

Every line starts with an index. With --from INDEX, another process can continue at
any coordinator, without gaps or duplicates.

With -o json, every line is a document: index, whole (true if tasks lists all tasks),
job, and the tasks that changed.`,
		Example: `  dtaskctl watch 42
  dtaskctl watch 42 --from 1207
  dtaskctl watch 42 -o json
  dtaskctl watch @last`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			id, err := a.job(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			ctx, cancel := a.waitContext(ctx)
			defer cancel()
			last := o.From
			for ch, err := range c.Changes(ctx, id, o) {
				if err != nil && ctx.Err() != nil && last > 0 {
					err = withHint(err, "the job is still running: run dtaskctl watch %s --from %d", id,
						last)
				}
				if err != nil {
					return view{}, err
				}
				last = ch.Index
				if err := a.printChange(ch); err != nil {
					return view{}, err
				}
			}
			return view{}, nil
		}),
	}
	bind(cmd.Flags(), &o.From, "from", "", "only changes after this `INDEX` (0 = start with the whole job)", integer[uint64](0, math.MaxInt64))
	return cmd
}

// printChange prints one change: a JSON document on one line, a YAML document, or
// the tasks that changed and then the job.
func (o *output) printChange(ch client.Change) error {
	doc := document.NewChange(ch.Index, ch.Whole, ch.Job, ch.Tasks)
	switch o.format {
	case outputJSON:
		text, err := document.Marshal(doc)
		return o.write(append(text, '\n'), err)
	case outputYAML:
		text, err := show.YAML(doc)
		return o.write(append([]byte("---\n"), text...), err)
	case outputTable:
	}
	return o.print(view{doc: doc, text: func(p *show.Printer) { p.Change(ch.Index, ch.Whole, ch.Job, ch.Tasks) }})
}

package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// A deadLetterChange is what dlq requeue and dlq purge do with dead letters.
type deadLetterChange struct {
	verb string // requeue
	// apply changes the dead letters of one job. name is that of the job, if the response
	// has it.
	apply func(ctx context.Context, c *client.Client, s selection, ifVersion uint64, key string) (n int, name string, err error)
	doc   func(n int, dryRun bool) any
}

// changeDeadLetters completes a command that changes dead letters, job by job, and
// prints how many were changed of which jobs.
func (a *app) changeDeadLetters(cmd *cobra.Command, change deadLetterChange) *cobra.Command {
	s := new(deadLetterSelector)
	bindDeadLetterFilter(cmd.Flags(), &s.filter)
	cmd.Flags().BoolVar(&s.all, "all", false,
		"all dead letters of the cluster (asks for confirmation)")
	bindPrecondition(cmd.Flags(), &s.precondition, change.verb)
	s.bind(cmd.Flags())
	cmd.Args = s.args
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		selected, err := s.selections(ctx, a, c, args)
		if err != nil {
			return view{}, err
		}
		if ok, err := s.confirm(&a.output, change.verb, selected); err != nil {
			return view{}, err
		} else if !ok {
			selected = nil
		}
		selected = splitSelections(selected)
		if err := s.check(len(selected)); err != nil {
			return view{}, err
		}
		var done changedDeadLetters
		p := s.precondition
		verb, dryRun := change.verb+"d", s.dryRun
		if dryRun {
			verb = "would be " + verb
		}
		failed := a.each(selected, func(call int, s selection) error {
			if dryRun {
				done.add(s.jobRef, len(s.tasks))
				return nil
			}
			n, name, err := change.apply(ctx, c, s, p.ifVersion, p.keyOf(call, len(selected)))
			if err == nil {
				s.name = cmp.Or(name, s.name)
				done.add(s.jobRef, n)
			}
			return err
		})
		if done.total == 0 && failed != nil {
			return view{}, failed
		}
		if a.textOutput() {
			done.addNames(ctx, a, c)
		}
		return lines(change.doc(done.total, dryRun), done.lines(verb)...), failed
	})
	return cmd
}

// maxShownJobs is how many jobs a command that changes dead letters names.
const maxShownJobs = 10

// changedDeadLetters counts the dead letters that a command changed, by job.
type changedDeadLetters struct {
	total  int
	jobs   []jobRef
	counts []int // beside jobs
}

// add counts n dead letters of a job. Calls for parts of one job follow each other.
func (d *changedDeadLetters) add(job jobRef, n int) {
	d.total += n
	if last := len(d.jobs) - 1; last >= 0 && d.jobs[last].job == job.job {
		d.counts[last] += n
		return
	}
	d.jobs, d.counts = append(d.jobs, job), append(d.counts, n)
}

// addNames adds the names of the jobs that are shown.
func (d *changedDeadLetters) addNames(ctx context.Context, a *app, c *client.Client) {
	for i, job := range d.jobs[:min(len(d.jobs), maxShownJobs)] {
		d.jobs[i] = job.withName(ctx, a, c)
	}
}

// lines has a line for each job, and a total for several.
func (d *changedDeadLetters) lines(verb string) []string {
	var text []string
	for i, job := range d.jobs[:min(len(d.jobs), maxShownJobs)] {
		text = append(text, fmt.Sprintf("%s of %s %s", show.Plural(d.counts[i], "dead letter"), job.describe(), verb))
	}
	if more := len(d.jobs) - maxShownJobs; more > 0 {
		text = append(text, "… and those of "+show.Plural(more, "more job"))
	}
	if len(d.jobs) != 1 {
		text = append(text, show.Plural(d.total, "dead letter")+" "+verb)
	}
	return text
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxChanging is how many jobs a command changes concurrently: their changes share entries
// of the log.
const maxChanging = 64

// A jobChange is what a command does with jobs or tasks.
type jobChange struct {
	verb, gerund, past string // cancel, cancelling, cancelled

	// ready checks the flags before anything is read, and check whether they fit the number
	// of targets; nil: they do.
	ready func() error
	check func(targets int) error
	// apply changes a target, the n-th of total from 0. It is called concurrently.
	apply func(ctx context.Context, c *client.Client, t *target, n, total int) (changed, error)
	// single makes the document of a single named job or task, and element that of one of
	// several; nil: a document.ChangedJob.
	single, element func(t *target, done *changed) any
}

// changed is what a change did.
type changed struct {
	line    string       // what happened; empty = that it was changed
	already bool         // an earlier call had made the change
	job     *dtaskv1.Job // after the change, with at least its version; nil: unknown
}

// An outcome is what happened to a target.
type outcome struct {
	target  *target
	changed *changed // nil: it was not changed
	line    string
	doc     any   // for programs; nil: none
	err     error // nil: it was changed, or needed no change
}

// A changeRun is one run of a command that changes jobs.
type changeRun struct {
	*app

	client   *client.Client
	selector *jobSelector
	change   *jobChange
	targets  []target

	done, failed int
	first        error // of those that failed
	fatal        error // why the others were not tried
}

// bindChange completes a command that changes jobs: the named ones, or those that match
// filters.
func (a *app) bindChange(cmd *cobra.Command, s *jobSelector, change *jobChange) {
	a.bindJobSelector(cmd, s)
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		r, err := a.newChangeRun(ctx, c, s, change, args)
		if err != nil {
			return view{}, err
		}
		return r.run(ctx)
	})
}

// newChangeRun selects jobs, and has the user confirm them.
func (a *app) newChangeRun(ctx context.Context, c *client.Client, s *jobSelector, change *jobChange, args []string) (*changeRun, error) {
	if change.ready != nil {
		if err := change.ready(); err != nil {
			return nil, err
		}
	}
	targets, err := s.targets(ctx, a, c, args)
	if err != nil {
		return nil, err
	}
	if change.check != nil {
		if err := change.check(len(targets)); err != nil {
			return nil, err
		}
	}
	ok, err := s.confirm(&a.output, change.verb, targets)
	if err != nil {
		return nil, err
	}
	if !ok {
		targets = nil
	}
	return &changeRun{app: a, client: c, selector: s, change: change, targets: targets}, nil
}

// run changes the jobs and prints what happened to each.
func (r *changeRun) run(ctx context.Context) (view, error) {
	var err error
	switch {
	case len(r.targets) == 1 && !r.selector.filtered && !r.selector.dryRun:
		return r.runSingle(ctx)
	case r.textOutput():
		err = r.printLines(ctx)
	default:
		err = r.print(view{doc: document.NewChangedJobs(r.selector.dryRun), list: "jobs", elements: r.documents(ctx)})
	}
	return view{}, firstError(err, r.err())
}

// runSingle changes a single named job or task. Its error is the only output.
func (r *changeRun) runSingle(ctx context.Context) (view, error) {
	o := r.one(ctx, 0)
	switch {
	case o.err != nil:
		return view{}, o.err
	case r.quiet && r.textOutput():
		return view{}, r.printIDs([]string{o.target.job})
	case r.change.single != nil:
		o.doc = r.change.single(o.target, o.changed)
	}
	return lines(o.doc, o.line), nil
}

// err is nil if all targets were changed, or needed no change.
func (r *changeRun) err() error {
	switch {
	case errors.Is(r.fatal, context.Canceled) && len(r.targets) > 1:
		return withHint(r.fatal, "%d of %d %s; repeat the command for the others", r.done, len(r.targets), r.change.past)
	case r.fatal != nil && len(r.targets) > 1:
		return fmt.Errorf("%d of %d %s: %w", r.done, len(r.targets), r.change.past, r.fatal)
	case r.failed > 0 && len(r.targets) > 1:
		return fmt.Errorf("%d of %d not %s, the first: %w", r.failed, len(r.targets), r.change.past, r.first)
	}
	return firstError(r.fatal, r.first)
}

// printLines prints a line for each target, and a total of those that filters selected.
func (r *changeRun) printLines(ctx context.Context) error {
	for o := range r.outcomes(ctx) {
		line := o.line
		if r.quiet {
			if line = o.target.job; o.err != nil {
				continue
			}
		}
		if err := r.write([]byte(line+"\n"), nil); err != nil {
			return err
		}
	}
	if r.quiet || !r.selector.filtered || r.fatal != nil {
		return nil
	}
	return r.write([]byte(show.Plural(r.done, "job")+" "+r.past()+"\n"), nil)
}

// past is what happened to a target that was changed.
func (r *changeRun) past() string {
	if r.selector.dryRun {
		return "would be " + r.change.past
	}
	return r.change.past
}

// documents yields the documents of the targets.
func (r *changeRun) documents(ctx context.Context) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for o := range r.outcomes(ctx) {
			if o.doc == nil {
				r.report(o.err.Error(), nil, "")
			} else if !yield(o.doc, nil) {
				return
			}
		}
	}
}

// outcomes changes the targets, several concurrently, and yields what happened to each in
// their order. It stops at an error that does not concern a single job.
func (r *changeRun) outcomes(ctx context.Context) iter.Seq[*outcome] {
	return func(yield func(*outcome) bool) {
		for first := 0; first < len(r.targets) && r.fatal == nil; first += maxChanging {
			batch := make([]outcome, min(maxChanging, len(r.targets)-first))
			var changing sync.WaitGroup
			for i := range batch {
				changing.Go(func() { batch[i] = r.one(ctx, first+i) })
			}
			changing.Wait()
			for i := range batch {
				if r.count(&batch[i]) && !yield(&batch[i]) {
					return
				}
			}
		}
	}
}

// count counts an outcome. It reports false for one that is unknown, or that would be the
// same for each target.
func (r *changeRun) count(o *outcome) bool {
	switch {
	case o.changed != nil:
		r.done++
	case o.err == nil:
	case errors.Is(o.err, client.ErrNotFound) || errors.Is(o.err, client.ErrConflict):
		r.failed++
		r.first = firstError(r.first, o.err)
	default:
		r.fatal = firstError(r.fatal, o.err)
		return false
	}
	return true
}

// one changes the n-th target.
func (r *changeRun) one(ctx context.Context, n int) outcome {
	t := &r.targets[n]
	if r.selector.dryRun {
		return r.planned(ctx, t)
	}
	done, err := r.change.apply(ctx, r.client, t, n, len(r.targets))
	if err == nil {
		return r.succeeded(ctx, t, &done)
	}
	if state, yes := r.selector.outdated(ctx, r.client, t, err); yes {
		what := "has expired"
		if state != 0 {
			what = statetext.Predicate(document.JobState(state)) + " by now"
		}
		doc := r.document(t, "skipped")
		doc.State, doc.Error = stateName(state), "the job "+what
		return outcome{target: t, line: fmt.Sprintf("%s skipped: it %s", t.describe(), what), doc: doc}
	}
	if len(r.targets) > 1 && !errors.Is(err, client.ErrNotFound) {
		t.jobRef = t.withName(ctx, r.app, r.client)
	}
	return r.refused(t, err)
}

// succeeded is the outcome of a target that was changed.
func (r *changeRun) succeeded(ctx context.Context, t *target, done *changed) outcome {
	if t.name == "" && done.job.GetName() != "" {
		t.name = done.job.GetName()
	}
	if len(r.targets) > 1 || r.textOutput() && !r.quiet {
		t.jobRef = t.withName(ctx, r.app, r.client)
	}
	o := outcome{target: t, changed: done, line: done.line}
	if o.line == "" {
		o.line = t.describe() + " " + r.change.past
		if done.already {
			o.line += " earlier"
		}
	}
	if r.change.element != nil {
		o.doc = r.change.element(t, done)
		return o
	}
	doc := r.document(t, r.change.past)
	if doc.Version = done.job.GetVersion(); done.already {
		doc.Result = "unchanged"
	}
	o.doc = doc
	return o
}

// refused is the outcome of a target that could not be changed.
func (r *changeRun) refused(t *target, err error) outcome {
	cause := strings.TrimPrefix(err.Error(), r.change.gerund+" "+jobRef{job: t.job, task: t.task}.describe()+": ")
	o := outcome{target: t, err: err, line: fmt.Sprintf("%s not %s: %s", t.describe(), r.change.past, show.Clean(cause))}
	if r.change.element == nil || r.selector.dryRun {
		doc := r.document(t, "error")
		doc.Error = cause
		o.doc = doc
	}
	return o
}

// planned is the outcome of a target that a dry run does not change.
func (r *changeRun) planned(ctx context.Context, t *target) outcome {
	if err := r.selector.inspect(ctx, r.client, t); err != nil {
		return r.refused(t, err)
	}
	return outcome{
		target: t, changed: new(changed), doc: r.document(t, "planned"),
		line: fmt.Sprintf("%s would be %s: the job %s", t.describe(), r.change.past, statetext.Predicate(stateName(t.state))),
	}
}

func (r *changeRun) document(t *target, result string) document.ChangedJob {
	return document.ChangedJob{ID: t.String(), Name: t.name, Tasks: slices.Clone(t.tasks), State: stateName(t.state), Result: result}
}

// stateName is the name of a job's state; empty if it is unknown.
func stateName(s dtaskv1.JobState) string {
	if s == 0 {
		return ""
	}
	return document.JobState(s)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// submitFlags are the flags of `submit`.
type submitFlags struct {
	inlineJob
	overrides jobOverrides
	namespace string
	needs     needFlags
	times     timeFlags
	queue     string

	wait   bool
	key    string
	dryRun bool
}

func newSubmit(a *app) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit FILE|-...",
		Short: "Submit jobs from files, standard input or flags",
		Long: `Submit one or more jobs. Every file, and every YAML document in a file, is a job.
Jobs are accepted or rejected independently; the exit code is that of the first
rejected job. With several jobs, --idempotency-key KEY gives them the keys KEY-1,
KEY-2 and so on, in order. A file *.jobspec.json has one job as dtaskd inspect
exports it.

--name, --namespace, --queue, --priority, --label and --set replace what the files say, in
each of them.
--set gives a value to a parameter that the file declares under job.params.

` + needsHelp + `

` + timesHelp,
		Example: `  dtaskctl submit job.yaml
  dtaskctl submit job.yaml --wait
  generate-job | dtaskctl submit - --wait -o json
  dtaskctl submit nightly.yaml --idempotency-key nightly-2026-05-01
  dtaskctl submit monday.yaml tuesday.yaml
  dtaskctl submit nightly.yaml --set day=2026-05-01 --label team=data --priority high
  dtaskctl submit report.yaml --needs @last
  dtaskctl submit report.yaml --start-at 2026-05-01T02:00:00Z --expires 2h
  dtaskctl submit --type prime --payload 999999937 --priority high --wait
  dtaskctl submit --batch 500 --random-priority
  dtaskctl submit job.yaml --dry-run`,
		Args: f.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := f.jobs(args, a.in, a.specOptions())
			if err != nil {
				return err
			}
			inNamespace(f.namespace, jobs...)
			f.times.set(jobs...)
			setQueue(f.queue, jobs...)
			if f.dryRun {
				return a.print(plan(jobs))
			}
			return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
				if err := a.addNeeds(ctx, c, f.needs, jobs...); err != nil {
					return view{}, err
				}
				submit := func() (view, error) { return a.submit(ctx, c, jobs[0], f) }
				if len(jobs) > 1 {
					submit = func() (view, error) { return a.submitMany(ctx, c, jobs, f) }
				}
				v, err := submit()
				nameFlags(err, f.queue, nil)
				locateNames(err, args)
				return v, err
			})(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.wait, "wait", false, "wait until the jobs finish (exit code 1 unless all completed)")
	fl.StringVar(&f.key, "idempotency-key", "",
		"idempotency `KEY`; repeating it with the same job submits the job once")
	fl.BoolVar(&f.dryRun, "dry-run", false,
		"validate the jobs and print their levels without submitting")
	fl.StringVar(&f.taskType, "type", "", "handler `TYPE` of a one-task job without a file")
	fl.StringVar(&f.payload, "payload", "", "payload `TEXT` of the task")
	bind(fl, &f.priority, "priority", "", "`PRIORITY` of the job: low, normal, high or urgent, or 0 to 3", func(text string) (string, error) {
		_, err := parsePriority(text)
		return text, err
	})
	bind(fl, &f.name, "name", "", "`NAME` of the job", notEmpty)
	bindNamespace(fl, &f.namespace, namespaceUsage)
	bindQueue(fl, &f.queue, "`QUEUE` in which the tasks wait (default: default)")
	f.overrides.bind(fl)
	f.needs.bind(fl)
	f.times.bind(fl)
	bind(fl, &f.batch, "batch", "", "`N` equal tasks in the job without a file (default type "+batchType+")", integer[int](1, maxJobTasks))
	fl.BoolVar(&f.randomPriority, "random-priority", false, "random priority for each task")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print job IDs only")
	return cmd
}

// args requires files, or the flags of a job without a file.
func (f *submitFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && f.taskType == "" && cmd.Flags().Changed("payload") {
		return fmt.Errorf("--payload needs --type: %s, or a type of your own workers (dtaskctl worker list -o json)", strings.Join(spec.BuiltInTypes(), ", "))
	}
	if len(args) == 0 && f.taskType == "" && f.batch == 0 {
		return errors.New("missing job file: use - for standard input, or --type for a job without a file")
	}
	if len(args) == 0 {
		if err := f.overrides.withoutFile(cmd.Flags()); err != nil {
			return err
		}
	}
	for _, name := range []string{"type", "payload", "batch", "random-priority"} {
		if len(args) > 0 && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s cannot be used with a job file", name)
		}
	}
	return exclusive(cmd.Flags(), "priority", "random-priority")
}

// jobs reads the job files, or builds the job that the flags describe.
func (f *submitFlags) jobs(paths []string, in io.Reader, opts spec.Options) ([]*dtaskv1.JobSpec, error) {
	if len(paths) > 0 {
		replaced, err := f.overrides.options(opts, f.name, f.priority)
		if err != nil {
			return nil, err
		}
		jobs, err := readJobs(paths, in, replaced)
		if len(jobs) > 1 && f.name != "" {
			return nil, usagef("--name cannot be used with several jobs")
		}
		return jobs, err
	}
	f.labels = f.overrides.labels.values
	job, err := f.build(opts)
	if err != nil {
		return nil, usage(err)
	}
	return []*dtaskv1.JobSpec{job}, nil
}

// plan is the view of jobs that are not submitted.
func plan(jobs []*dtaskv1.JobSpec) view {
	var plans document.Plans
	var text []string
	for _, job := range jobs {
		p := document.Plan{
			Name: job.GetHeader().GetName(), TasksTotal: countTasks(job),
			Levels: spec.Levels(job), Params: job.GetHeader().GetParams(),
		}
		plans.Jobs = append(plans.Jobs, p)
		text = append(text, fmt.Sprintf("%s: %s", show.Clean(p.Name), show.Levels(p.Levels)))
		if len(p.Params) > 0 {
			text = append(text, "  params: "+show.Params(p.Params))
		}
	}
	if len(jobs) == 1 {
		return lines(plans.Jobs[0], text...)
	}
	return lines(plans, text...)
}

// countTasks returns how many tasks a job has, including those of its arrays.
func countTasks(job *dtaskv1.JobSpec) int {
	n := 0
	for _, t := range job.GetTasks() {
		n += int(min(array.Tasks(t), math.MaxInt32)) //nolint:gosec // bounded
	}
	return n
}

// submit submits one job and, with --wait, waits for it.
func (a *app) submit(ctx context.Context, c *client.Client, job *dtaskv1.JobSpec, f submitFlags) (view, error) {
	got, err := c.Submit(ctx, job, client.SubmitOptions{Key: f.key})
	if err != nil {
		return view{}, submitError(err)
	}
	a.note("%s", show.Levels(spec.Levels(job)))
	a.remember(c, got.ID)
	if !got.Existed {
		a.warnUnplaceable(ctx, c, job)
	}
	if !f.wait {
		a.noteEarlier(ctx, c, got)
	}
	doc := document.Submission{ID: got.ID, Existed: got.Existed, TasksTotal: countTasks(job)}
	return a.submitted(ctx, c, doc, submittedLine(job, got), f.wait)
}

// noteEarlier tells how a job that was submitted earlier with this key ended, and where
// its result is.
func (a *app) noteEarlier(ctx context.Context, c *client.Client, got client.Submitted) {
	if !got.Existed || a.quiet {
		return
	}
	job, err := c.Job(ctx, got.ID, client.ReadOptions{})
	if err != nil {
		return // the submission has succeeded, and this is only a hint
	}
	switch state := job.GetState(); state { //nolint:exhaustive // the others have not ended
	case dtaskv1.JobState_JOB_STATE_COMPLETED:
		a.note("it has completed: dtaskctl result %s prints its result", got.ID)
	case dtaskv1.JobState_JOB_STATE_FAILED:
		a.note("it has failed: dtaskctl status %[1]s shows why, dtaskctl retry %[1]s resumes it", got.ID)
	case dtaskv1.JobState_JOB_STATE_CANCELLED:
		a.note("it was cancelled: dtaskctl retry %s resumes it", got.ID)
	default:
		a.note("it %s: dtaskctl wait %s waits for it", statetext.Predicate(document.JobState(state)), got.ID)
	}
}

// submitMany submits several jobs and, with --wait, waits for them. The error is
// that of the first job that was rejected or did not complete.
func (a *app) submitMany(ctx context.Context, c *client.Client, jobs []*dtaskv1.JobSpec, f submitFlags) (view, error) {
	submissions := make([]client.Submission, len(jobs))
	for i, job := range jobs {
		submissions[i].Job = job
		if f.key != "" {
			submissions[i].Key = f.key + "-" + strconv.Itoa(i+1)
		}
	}
	var (
		first     error
		doc       document.Submissions
		ids, text []string
		submitted []client.Submitted
	)
	for i, r := range c.SubmitMany(ctx, submissions) {
		job, name := jobs[i], show.Clean(jobs[i].GetHeader().GetName())
		one := document.NamedSubmission{
			Submission: document.Submission{ID: r.ID, Existed: r.Existed, TasksTotal: countTasks(job)},
			Name:       job.GetHeader().GetName(),
		}
		if r.Err == nil {
			ids, submitted = append(ids, r.ID), append(submitted, r.Submitted)
			text = append(text, submittedLine(job, r.Submitted))
			a.note("%s: %s", name, show.Levels(spec.Levels(job)))
		} else {
			nameFlags(r.Err, f.queue, nil)
			first = firstError(first, fmt.Errorf("%s: %w", name, submitError(r.Err)))
			one.Error = r.Err.Error()
			text = append(text, fmt.Sprintf("job (%s) rejected: %s", name, show.Clean(one.Error)))
		}
		doc.Jobs = append(doc.Jobs, one)
	}
	if len(ids) > 0 {
		a.remember(c, ids[len(ids)-1])
	}
	if first == nil {
		a.warnUnplaceable(ctx, c, jobs...)
	}
	switch {
	case f.wait && first == nil:
		limited, cancel := a.waitContext(ctx)
		defer cancel()
		return waiter{&a.output, c}.many(limited, ids, c.WaitSubmitted(limited, submitted))
	case a.quiet && a.textOutput():
		return view{}, firstError(a.printIDs(ids), first)
	}
	return lines(doc, text...), first
}

// submitError adds exit code and hint to the error of a submission.
func submitError(err error) error {
	switch {
	case errors.Is(err, client.ErrInvalid):
		return &commandError{err: err, code: exitJobFile} // a limit that only the coordinators know
	case errors.Is(err, client.ErrConflict) && strings.Contains(err.Error(), "idempotency key"):
		return withHint(err, "this key belongs to a different job: use another --idempotency-key, or submit the same job")
	}
	return err
}

func submittedLine(job *dtaskv1.JobSpec, s client.Submitted) string {
	text := fmt.Sprintf("job %s (%s) submitted", s.ID, show.Clean(job.GetHeader().GetName()))
	if s.Existed {
		text += " earlier with this key"
	} else if needs := job.GetHeader().GetNeeds(); len(needs) > 0 {
		text += "; it needs " + show.NeededJobs(needs)
	}
	if s.Existed {
		return text
	}
	if at := time.UnixMilli(job.GetHeader().GetStartAtMs()); at.After(time.Now()) {
		text += "; scheduled until " + at.UTC().Format(time.RFC3339)
	}
	if after := job.GetHeader().GetStartAfterMs(); after > 0 {
		text += "; starts no earlier than " + show.Duration(time.Duration(after)*time.Millisecond) + " after its submission"
	}
	return text
}

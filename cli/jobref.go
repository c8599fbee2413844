package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// lastName is the NAME of the caller's last submission. It hides a job of that name.
const lastName = "last"

// jobForms explains JOB in the help of dtaskctl.
const jobForms = `A JOB is one of

  42      the ID of a job
  @last   the last job that you submitted from this machine to this cluster
  @NAME   the newest job with this name, in any state

A TASK of it follows a slash: 42/fetch, @last/fetch, '@etl/map[17]'. Scripts should use
IDs: another job may take the name. dtaskctl list --name last finds a job named last.`

// A jobRef is a job, or a task of it, that the user named.
type jobRef struct {
	job  string // ID
	task string // empty = the whole job
	name string // of the job; empty = unknown
}

// String returns JOB or JOB/TASK with the ID of the job.
func (r jobRef) String() string {
	if r.task == "" {
		return r.job
	}
	return r.job + "/" + r.task
}

// describe returns what the reference names, with the name of the job if it is known.
func (r jobRef) describe() string {
	text := "job " + r.job
	if r.task != "" {
		text = "task " + show.Clean(r.String())
	}
	if r.name != "" {
		text += " (" + show.Clean(r.name) + ")"
	}
	return text
}

// ref resolves JOB or JOB/TASK. CELL:JOB/TASK, with the name of a cluster, is reserved: neither
// the ID nor the name of a job has a colon. The ID of a task may have some.
func (a *app) ref(ctx context.Context, c *client.Client, arg string) (jobRef, error) {
	job, task, found := strings.Cut(arg, "/")
	if found && task == "" {
		return jobRef{}, notFound("invalid task reference %q: use JOB/TASK", arg)
	}
	r, err := a.resolve(ctx, c, job)
	r.task = task
	return r, err
}

// taskRef resolves JOB/TASK.
func (a *app) taskRef(ctx context.Context, c *client.Client, arg string) (jobRef, error) {
	if !strings.Contains(arg, "/") {
		return jobRef{}, usagef("invalid task reference %q: use JOB/TASK", arg)
	}
	return a.ref(ctx, c, arg)
}

// job resolves JOB to an ID.
func (a *app) job(ctx context.Context, c *client.Client, arg string) (string, error) {
	r, err := a.resolve(ctx, c, arg)
	return r.job, err
}

// jobs resolves several JOBs and removes duplicates.
func (a *app) jobs(ctx context.Context, c *client.Client, args []string) ([]string, error) {
	var ids []string
	for _, arg := range args {
		id, err := a.job(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return unique(ids), nil
}

// unique returns the distinct values in order of first appearance.
func unique(values []string) []string {
	seen := make(map[string]bool, len(values))
	return slices.DeleteFunc(values, func(v string) bool {
		known := seen[v]
		seen[v] = true
		return known
	})
}

// resolve resolves a reference to a whole job, without a call if it is an ID. A command
// resolves a name once: @etl/a and @etl/b are tasks of the same job, even if another
// job named etl is submitted in between.
func (a *app) resolve(ctx context.Context, c *client.Client, arg string) (jobRef, error) {
	name, named := strings.CutPrefix(arg, "@")
	if !named {
		id, err := parseJobID(arg)
		return jobRef{job: id}, err
	}
	if r, ok := a.resolved[name]; ok {
		return r, nil
	}
	var r jobRef
	var err error
	switch name {
	case "":
		err = withHint(notFound("invalid job reference %q: use an ID such as 42, @last or @NAME", arg),
			"dtaskctl list shows the IDs and names of jobs")
	case lastName:
		r, err = a.lastSubmission(ctx, c)
	default:
		r, err = a.newestJob(ctx, c, name)
	}
	if err != nil {
		return jobRef{}, err
	}
	if a.resolved == nil {
		a.resolved = make(map[string]jobRef)
	}
	a.resolved[name] = r
	return r, nil
}

// newestJob returns the newest job with a name, in any state.
func (a *app) newestJob(ctx context.Context, c *client.Client, name string) (jobRef, error) {
	hint := "dtaskctl list shows the IDs and names of jobs"
	if _, err := parseJobID(name); err == nil {
		hint += fmt.Sprintf("; to name a job by its ID, write %s without @", name)
	}
	if !utf8.ValidString(name) { // a request can't have it
		return jobRef{}, withHint(notFound("no job named %q", name), "%s", hint)
	}
	incomplete := false
	jobs, err := collect(c.Jobs(ctx, client.JobFilter{Name: name, Limit: 1, Stale: a.stale, Fresh: a.noteFresh, Incomplete: func() { incomplete = true }}))
	switch {
	case err != nil:
		return jobRef{}, err
	case incomplete:
		// A newer job may be missing, and a command would change the wrong one.
		return jobRef{}, withHint(&client.Error{
			Kind:    client.ErrRefused,
			Message: fmt.Sprintf("the newest job named %s is unknown: this coordinator is still fetching finished jobs", name),
		}, "use the ID of the job: dtaskctl list --name %s shows the known ones", show.Clean(name))
	case len(jobs) == 0:
		return jobRef{}, withHint(notFound("no job named %s", name), "%s", hint)
	}
	return jobRef{job: jobs[0].GetId(), name: jobs[0].GetName()}, nil
}

// nameTimeout bounds the read of a name. The change that it describes is made already.
const nameTimeout = 2 * time.Second

// withName adds the name of a job, to show which one a command has changed. The name is
// left out if it can't be read. Any replica knows it.
func (r jobRef) withName(ctx context.Context, a *app, c *client.Client) jobRef {
	if r.name == "" {
		limited, cancel := a.optional(ctx, nameTimeout)
		defer cancel()
		if job, err := c.Job(limited, r.job, client.ReadOptions{Stale: true}); err == nil {
			r.name = job.GetName()
		}
	}
	return r
}

package cli

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// completionTimeout is the longest that a shell waits for a completion. Without an
	// answer, nothing is completed.
	completionTimeout = time.Second
	// maxCompletions is how many values a completion has, and maxCompletedJobs how many of
	// the newest jobs are searched for names.
	maxCompletions   = 100
	maxCompletedJobs = 1000
)

// A completer returns the values that may follow what the user has typed, each maybe with
// a tab and a description. args are the complete arguments before it.
type completer func(ctx context.Context, c *client.Client, args []string, typed string) []string

// jobArgs describes the arguments of the commands that take jobs.
var jobArgs = map[string]struct {
	states []dtaskv1.JobState // of the jobs; nil = all
	tasks  bool               // JOB/TASK is possible
	many   bool               // several are possible
}{
	"dtaskctl status":  {tasks: true},
	"dtaskctl result":  {tasks: true},
	"dtaskctl logs":    {tasks: true},
	"dtaskctl explain": {tasks: true},
	"dtaskctl watch":   {},
	"dtaskctl rerun":   {},
	"dtaskctl wait":    {many: true},
	"dtaskctl cancel":  {states: activeJobStates, tasks: true, many: true},
	"dtaskctl update":  {states: activeJobStates, tasks: true, many: true},
	"dtaskctl retry":   {states: allJobStates[1:], tasks: true, many: true},

	"dtaskctl dlq show":    {tasks: true},
	"dtaskctl dlq requeue": {tasks: true, many: true},
	"dtaskctl dlq purge":   {tasks: true, many: true},
}

// fileArgs are the commands whose arguments are files, or whatever another command takes.
var fileArgs = []string{"dtaskctl submit", "dtaskctl plan", "dtaskctl run", "dtaskctl schedule next", "dtaskctl schedule set"}

// workerArgs are the commands that take the name of a worker.
var workerArgs = []string{"dtaskctl worker drain", "dtaskctl worker undrain"}

// scheduleArgs are the commands that take the name of a schedule.
var scheduleArgs = []string{
	"dtaskctl schedule show", "dtaskctl schedule pause", "dtaskctl schedule resume", "dtaskctl schedule delete", "dtaskctl schedule run", "dtaskctl schedule backfill",
}

// addCompletions adds the completions of arguments and flags to all commands. The flags
// of bindEnum have theirs already.
func (a *app) addCompletions(cmd *cobra.Command) {
	path := cmd.CommandPath()
	jobs, takesJobs := jobArgs[path]
	switch {
	case cmd.HasSubCommands() || slices.Contains(fileArgs, path) || len(cmd.ValidArgs) > 0 || cmd.ValidArgsFunction != nil:
	case takesJobs:
		cmd.ValidArgsFunction = a.completing(func(ctx context.Context, c *client.Client, args []string, typed string) []string {
			if len(args) > 0 && !jobs.many {
				return nil
			}
			job, task, isTask := strings.Cut(typed, "/")
			if isTask && jobs.tasks {
				return a.completeTasks(ctx, c, job, task)
			}
			return slices.DeleteFunc(completeJobs(ctx, c, jobs.states, typed), func(value string) bool {
				value, _, _ = strings.Cut(value, "\t")
				return slices.Contains(args, value)
			})
		})
	case slices.Contains(workerArgs, path):
		cmd.ValidArgsFunction = a.completing(firstArg(completeWorkers))
	case slices.Contains(scheduleArgs, path):
		cmd.ValidArgsFunction = a.completing(firstArg(completeSchedules))
	default:
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	a.addFlagCompletions(cmd, path)
	for _, sub := range cmd.Commands() {
		a.addCompletions(sub)
	}
}

// addFlagCompletions adds the completions of the flags that have one meaning in all
// commands.
func (a *app) addFlagCompletions(cmd *cobra.Command, path string) {
	states := make([]string, 0, len(allTaskStates))
	switch jobs, limited := jobArgs[path]; {
	case path == "dtaskctl status":
		states = taskStateNames()
	case limited && jobs.states != nil:
		for _, s := range jobs.states {
			states = append(states, document.JobState(s))
		}
	default:
		for _, s := range allJobStates {
			states = append(states, document.JobState(s))
		}
	}
	byFlag := map[string]completer{
		"state": func(_ context.Context, _ *client.Client, _ []string, typed string) []string {
			return completeList(states, typed)
		},
		"priority": func(context.Context, *client.Client, []string, string) []string {
			return []string{"low", "normal", "high", "urgent"}
		},
		"job": func(ctx context.Context, c *client.Client, _ []string, typed string) []string {
			return completeJobs(ctx, c, nil, typed)
		},
		"namespace": completeNamespaces,
		"role": func(context.Context, *client.Client, []string, string) []string {
			return []string{"admin", "operator", "submitter", "reader", "metrics"}
		},
		"type": func(context.Context, *client.Client, []string, string) []string { return spec.BuiltInTypes() },
	}
	if path == "dtaskctl worker list" {
		byFlag["name"] = completeWorkers
	} else if cmd.Flags().Lookup("state") != nil {
		byFlag["name"] = completeNames
		byFlag["owner"] = completeOwners
	}
	for name, complete := range byFlag {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, a.completing(complete)) // it exists, and has none yet
		}
	}
}

// completing makes a completion function of cobra. It ends soon, and has no errors: there
// is nothing to complete then.
func (a *app) completing(complete completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		ctx, cancel := a.optional(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := a.newClient(a.patient(completionTimeout))
		if err != nil {
			return nil, directive
		}
		defer func() { _ = c.Close() }()
		a.stale = true // no leader is needed, and none is waited for
		values := slices.DeleteFunc(complete(ctx, c, args, typed), func(value string) bool {
			return !strings.HasPrefix(value, typed)
		})
		for i, value := range values {
			values[i] = cleanCompletion(value)
		}
		return values[:min(len(values), maxCompletions)], directive
	}
}

// cleanCompletion removes control characters other than the tab before the description.
func cleanCompletion(value string) string {
	value, description, described := strings.Cut(value, "\t")
	if !described {
		return show.Clean(value)
	}
	return show.Clean(value) + "\t" + show.Clean(description)
}

// firstArg is a completer of the first argument only.
func firstArg(complete completer) completer {
	return func(ctx context.Context, c *client.Client, args []string, typed string) []string {
		if len(args) > 0 {
			return nil
		}
		return complete(ctx, c, args, typed)
	}
}

// completeList completes the last of comma-separated words.
func completeList(words []string, typed string) []string {
	before := typed[:strings.LastIndex(typed, ",")+1]
	var values []string
	for _, word := range words {
		if !slices.Contains(strings.Split(before, ","), word) {
			values = append(values, before+word)
		}
	}
	return values
}

// bashWordBreaks makes @NAME one word. Otherwise bash completes what follows the @ as a word
// of its own.
const bashWordBreaks = `
# @NAME is one word.
COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}
`

// completeNamesInBash adds bashWordBreaks to the script of the completion command, which
// cobra writes.
func completeNamesInBash(root *cobra.Command) {
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || bash.Name() != "bash" {
		return
	}
	write := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		if err := write(cmd, args); err != nil {
			return err
		}
		_, err := io.WriteString(cmd.OutOrStdout(), bashWordBreaks)
		return err //nolint:wrapcheck // as cobra returns it
	}
}

// eachNewestJob passes the newest jobs in some states to do, until it returns false.
func eachNewestJob(ctx context.Context, c *client.Client, states []dtaskv1.JobState, do func(*dtaskv1.Job) bool) {
	f := client.JobFilter{States: states, Limit: maxCompletedJobs, Stale: true}
	for job, err := range c.Jobs(ctx, f) {
		if err != nil || !do(job) {
			return
		}
	}
}

// completeJobs completes the ID of a job, or @last and the names of jobs.
func completeJobs(ctx context.Context, c *client.Client, states []dtaskv1.JobState, typed string) (values []string) {
	prefix, named := strings.CutPrefix(typed, "@")
	if typed == "" || named {
		values = append(values, "@"+lastName+"\tyour last submission")
	}
	seen := make(map[string]bool)
	eachNewestJob(ctx, c, states, func(job *dtaskv1.Job) bool {
		state := document.JobState(job.GetState())
		switch {
		case !named && strings.HasPrefix(job.GetId(), typed):
			values = append(values, job.GetId()+"\t"+job.GetName()+", "+state)
		case named && strings.HasPrefix(job.GetName(), prefix) && !seen[job.GetName()]:
			seen[job.GetName()] = true
			values = append(values, "@"+job.GetName()+"\tjob "+job.GetId()+", "+state)
		}
		return len(values) <= maxCompletions
	})
	return values
}

// completeNames completes the name of a job, completeOwners the owner, and
// completeNamespaces the namespace.
func completeNames(ctx context.Context, c *client.Client, _ []string, typed string) []string {
	return completeField(ctx, c, typed, (*dtaskv1.Job).GetName)
}

func completeNamespaces(ctx context.Context, c *client.Client, _ []string, typed string) []string {
	return completeField(ctx, c, typed, func(j *dtaskv1.Job) string { return cmp.Or(j.GetNamespace(), auth.DefaultNamespace) })
}

func completeOwners(ctx context.Context, c *client.Client, _ []string, typed string) []string {
	return completeField(ctx, c, typed, (*dtaskv1.Job).GetOwner)
}

func completeField(ctx context.Context, c *client.Client, typed string, field func(*dtaskv1.Job) string) (values []string) {
	seen := map[string]bool{"": true}
	eachNewestJob(ctx, c, nil, func(job *dtaskv1.Job) bool {
		if value := field(job); !seen[value] && strings.HasPrefix(value, typed) {
			seen[value] = true
			values = append(values, value)
		}
		return len(values) < maxCompletions
	})
	return values
}

// completeTasks completes JOB/TASK with the tasks and the arrays of a job.
func (a *app) completeTasks(ctx context.Context, c *client.Client, job, typed string) (values []string) {
	id, err := a.job(ctx, c, job)
	if err != nil {
		return nil
	}
	arrays := make(map[string]bool)
	for task, err := range c.Tasks(ctx, id, client.TaskFilter{Stale: true}) {
		if err != nil || len(values) >= maxCompletions {
			break
		}
		if array := task.GetArray(); array != "" && !arrays[array] && strings.HasPrefix(array, typed) {
			arrays[array] = true
			values = append(values, job+"/"+array+"\tarray")
		}
		if strings.HasPrefix(task.GetId(), typed) {
			values = append(values, job+"/"+task.GetId()+"\t"+document.TaskState(task.GetState()))
		}
	}
	return values
}

// completeWorkers completes the name of a worker.
func completeWorkers(ctx context.Context, c *client.Client, _ []string, typed string) (values []string) {
	for w, err := range c.Workers(ctx, client.WorkerFilter{Limit: maxCompletedJobs, Stale: true}) {
		if err != nil {
			break
		}
		if strings.HasPrefix(w.GetName(), typed) {
			values = append(values, w.GetName()+"\t"+w.GetState())
		}
	}
	return values
}

// completeSchedules completes the name of a schedule.
func completeSchedules(ctx context.Context, c *client.Client, _ []string, typed string) (values []string) {
	for x, err := range c.Schedules(ctx, client.ScheduleFilter{Limit: maxCompletedJobs, Stale: true}) {
		if err != nil {
			break
		}
		if strings.HasPrefix(x.GetName(), typed) {
			values = append(values, x.GetName()+"\t"+x.GetState())
		}
	}
	return values
}

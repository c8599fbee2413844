package cli

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// allJobStates are the states of a job in the order in which it passes them.
var allJobStates = []dtaskv1.JobState{
	dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING, dtaskv1.JobState_JOB_STATE_COMPLETED,
	dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED,
}

// activeJobStates are the states of a job that has not ended.
var activeJobStates = []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING}

// jobFilterFlags are the flags that bindJobFilter adds.
var jobFilterFlags = []string{"name", "owner", "namespace", "state", "label", "since", "until"}

// bindJobFilter adds the flags that filter jobs by name, owner, label, time and state, of
// which only some may be possible.
func (a *app) bindJobFilter(fl *pflag.FlagSet, f *client.JobFilter, states []dtaskv1.JobState) {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = document.JobState(s)
	}
	fl.Func("state", "only jobs in this `STATE`: "+alternatives(names)+" (comma-separated or repeated)", func(text string) error {
		parsed, err := parseStates(text, states, document.JobState)
		f.States = append(f.States, parsed...)
		return err
	})
	fl.StringVar(&f.Name, "name", "", "only jobs with this `NAME`")
	fl.StringVar(&f.Owner, "owner", "", "only jobs of this `OWNER`")
	bindNamespace(fl, &f.Namespace, "only jobs in this `NAMESPACE` (default: all that you may see)")
	fl.StringToStringVar(&f.Labels, "label", nil,
		"only jobs with this label `KEY=VALUE` (repeated: all must match)")
	fl.Lookup("label").DefValue = "" // otherwise help shows (default [])
	parse := pastTime(a.now)
	bind(fl, &f.Since, "since", "", "only jobs submitted at this `TIME` or later: 2026-05-01T12:00:00Z, or a duration before now such as 2h", parse)
	bind(fl, &f.Before, "until", "", "only jobs submitted before this `TIME`", parse)
}

// namespaceUsage is the help of --namespace where a job is submitted.
const namespaceUsage = "`NAMESPACE` of the job (default: that of the file, else \"default\" or the only one that you have)"

// bindNamespace adds the flag of a namespace.
func bindNamespace(fl *pflag.FlagSet, namespace *string, usage string) {
	bind(fl, namespace, "namespace", "", usage, func(text string) (string, error) {
		return text, spec.CheckNamespace(text)
	})
}

// inNamespace moves jobs into a namespace; empty = where their files put them.
func inNamespace(namespace string, jobs ...*dtaskv1.JobSpec) {
	if namespace == "" {
		return
	}
	for _, job := range jobs {
		job.GetHeader().Namespace = namespace
	}
}

// checkJobFilter checks the flags that depend on each other.
func checkJobFilter(f *client.JobFilter) error {
	if !f.Since.IsZero() && !f.Before.IsZero() && !f.Since.Before(f.Before) {
		return usagef("invalid --since: must be before --until")
	}
	return nil
}

// pastTime parses a time, or a duration before now.
func pastTime(now func() time.Time) func(string) (time.Time, error) {
	return func(text string) (time.Time, error) {
		if d, err := spec.ParseDuration(text); err == nil {
			text = now().Add(-d).UTC().Format(time.RFC3339Nano)
		}
		return timestamp(text)
	}
}

// parseStates parses comma-separated states, of which only some are possible.
func parseStates[S comparable](text string, possible []S, nameOf func(S) string) ([]S, error) {
	var states []S
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(possible, func(s S) bool { return nameOf(s) == name })
		if i < 0 {
			names := make([]string, len(possible))
			for k, s := range possible {
				names[k] = nameOf(s)
			}
			return nil, errors.New("must be " + alternatives(names))
		}
		states = append(states, possible[i])
	}
	return states, nil
}

// alternatives lists words: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

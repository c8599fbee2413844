package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newDLQ(a *app) *cobra.Command {
	return newNoun("dlq", "List, requeue and purge dead letters", `  dtaskctl dlq list
  dtaskctl dlq show 42/fetch
  dtaskctl dlq requeue 42/fetch
  dtaskctl dlq purge --job 42`, newDLQList(a), newDLQShow(a), newDLQRequeue(a), newDLQPurge(a))
}

// bindDeadLetterFilter adds the flags that filter dead letters.
func bindDeadLetterFilter(fl *pflag.FlagSet, f *client.DeadLetterFilter) {
	fl.StringVar(&f.Job, "job", "", "only dead letters of this `JOB`")
	bindNamespace(fl, &f.Namespace, "only dead letters in this `NAMESPACE` (default: all that you may see)")
	fl.StringVar(&f.Type, "type", "", "only dead letters of this handler `TYPE`, or command or run")
}

// deadLetters reads all dead letters that match f, whose job may be @last or @NAME.
func (a *app) deadLetters(ctx context.Context, c *client.Client, f client.DeadLetterFilter) (_ []*dtaskv1.DeadLetter, err error) {
	if f.Job != "" {
		if f.Job, err = a.job(ctx, c, f.Job); err != nil {
			return nil, err
		}
	}
	f.Stale, f.Fresh = a.stale, a.noteFresh
	return collect(c.DeadLetters(ctx, f))
}

// A deadLetterSelector selects the dead letters to change: the named ones, or
// those that match the flags.
type deadLetterSelector struct {
	filter client.DeadLetterFilter
	all    bool

	confirmation
	precondition
}

// args requires references or flags, and not both.
func (s *deadLetterSelector) args(cmd *cobra.Command, args []string) error {
	filtered := s.filter.Job != "" || s.filter.Type != ""
	switch {
	case len(args) == 0 && !filtered && !s.all:
		return fmt.Errorf("missing selection: use JOB/TASK..., --job, --type or --all: %s",
			cmd.UseLine())
	case len(args) > 0 && (filtered || s.all):
		return errors.New("JOB/TASK and --job, --type or --all are mutually exclusive")
	case filtered && s.all:
		return errors.New("--all and --job or --type are mutually exclusive")
	}
	if len(args) == 0 && (s.key != "" || s.ifVersion != 0) {
		return errors.New("--idempotency-key and --if-version require JOB/TASK")
	}
	for _, arg := range args {
		if !strings.Contains(arg, "/") {
			return fmt.Errorf("invalid task reference %q: use JOB/TASK, or --job %s for the whole job",
				arg, arg)
		}
	}
	return nil
}

// selections lists the selected dead letters by job.
func (s *deadLetterSelector) selections(ctx context.Context, a *app, c *client.Client, args []string) ([]selection, error) {
	if len(args) > 0 {
		return a.selections(ctx, c, args)
	}
	letters, err := a.deadLetters(ctx, c, s.filter)
	if err != nil {
		return nil, err
	}
	refs := make([]jobRef, 0, len(letters))
	for _, l := range letters {
		refs = append(refs, jobRef{job: l.GetJob(), task: l.GetTask(), name: l.GetJobName()})
	}
	return groupRefs(refs), nil
}

// confirm asks the user about --all unless --yes is set.
func (s *deadLetterSelector) confirm(o *output, verb string, selected []selection) (bool, error) {
	if !s.all || len(selected) == 0 {
		return true, nil
	}
	return s.ask(o, fmt.Sprintf("%s %s of %s", verb,
		show.Plural(countSelected(selected), "dead letter"), show.Plural(len(selected), "job")), nil)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// needsHelp explains --needs in the help of a command.
const needsHelp = `With --needs JOB, the tasks of the new job wait until JOB has completed. If JOB fails or is
cancelled, the new job fails and runs nothing. --needs JOB=ended waits for any end of JOB.
--needs JOB=failed waits until JOB fails or is cancelled. If JOB completes, the new job is
skipped: it completes and runs nothing.`

// needFlags is the repeatable flag --needs.
type needFlags struct{ list []neededJob }

type neededJob struct {
	job  string // as written
	when dtaskv1.Condition
}

func (f *needFlags) bind(fl *pflag.FlagSet) {
	fl.Var(f, "needs", "`JOB[=WHEN]` that must end first; WHEN is completed (default), ended or failed; repeatable")
}

// Set implements pflag.Value.
func (f *needFlags) Set(text string) error {
	job, word, conditional := strings.Cut(text, "=")
	n := neededJob{job, dtaskv1.Condition_CONDITION_COMPLETED}
	if conditional {
		var err error
		if n.when, err = spec.ParseJobCondition(word); err != nil {
			return fmt.Errorf("must be JOB or JOB=WHEN: %w", err)
		}
	}
	if job == "" {
		return errors.New("must be JOB or JOB=WHEN")
	}
	if strings.Contains(job, "/") {
		return fmt.Errorf("%q names a task: a job needs whole jobs, so write %s", job, strings.SplitN(job, "/", 2)[0])
	}
	f.list = append(f.list, n)
	return nil
}

// String implements pflag.Value: the flag has no default.
func (f *needFlags) String() string { return "" }

// Type implements pflag.Value.
func (f *needFlags) Type() string { return "value" }

// addNeeds adds the needed jobs to jobs that are to be submitted.
func (a *app) addNeeds(ctx context.Context, c *client.Client, f needFlags, jobs ...*dtaskv1.JobSpec) error {
	for _, n := range f.list {
		id, err := a.job(ctx, c, n.job)
		if err != nil {
			return err
		}
		number, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return fmt.Errorf("parsing the id of job %s: %w", n.job, err)
		}
		for _, job := range jobs {
			job.Header.Needs = append(job.GetHeader().GetNeeds(), &dtaskv1.JobNeed{Job: number, Condition: n.when})
		}
	}
	return nil
}

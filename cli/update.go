package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// updateFlags are the flags that change something.
var updateFlags = []string{"priority", "payload", "max-retries", "task-timeout", "not-before", "queue"}

func newUpdate(a *app) *cobra.Command {
	r := new(dtaskv1.UpdateRequest)
	var payload string
	var p precondition
	s := &jobSelector{usual: activeJobStates, explicit: []string{"payload", "idempotency-key", "if-version"}}
	cmd := &cobra.Command{
		Use:   "update JOB[/TASK]...",
		Short: "Update tasks that have not started",
		Long: `Update tasks that have had no attempt: single ones, or all of a job, of the named jobs
or of all pending and running jobs that match filters. The update of a job applies
completely or not at all. A job's new priority doesn't change tasks with a priority
of their own. The exit code is 5 if a named task, or every task of a job, has started.

--queue moves whole jobs to another queue, also those with running tasks, and can't be
combined with other changes.

` + selectorHelp,
		Example: `  dtaskctl update 42 --priority urgent
  dtaskctl update 42/fetch --payload @input.json --not-before 2h
  dtaskctl update @etl --priority urgent
  dtaskctl update 42/fetch --max-retries 5 --task-timeout 30m --if-version 3
  dtaskctl update 42 43 44/fetch --priority low
  dtaskctl update 42 --queue etl
  dtaskctl update --label team=data --state pending --priority high --dry-run`,
	}
	fl := cmd.Flags()
	bind(fl, &r.Priority, "priority", "", "new `PRIORITY`: low, normal, high or urgent, or 0 to 3",
		parsePriority)
	fl.StringVar(&payload, "payload", "", "new payload of a task: `TEXT`, @FILE, or @- for standard input")
	fl.Func("max-retries", "`N` retries after the first attempt", func(text string) error {
		n, err := integer[uint32](0, math.MaxUint32)(text)
		r.MaxRetries = &n
		return err
	})
	fl.Func("task-timeout", "maximum `DURATION` of an attempt, such as 10m", func(text string) error {
		d, err := duration(time.Millisecond, spec.MaxDuration)(text)
		r.TimeoutMs = d.Milliseconds()
		return err
	})
	fl.Func("not-before", "earliest start `TIME`: 2026-05-01T12:00:00Z, a duration from now such as 2h, or now", func(text string) error {
		return setNotBefore(r, text)
	})
	bindQueue(fl, &r.Queue, "`QUEUE` to move whole jobs to")
	bindPrecondition(fl, &p, "update")
	a.bindChange(cmd, s, &jobChange{
		verb: "update", gerund: "updating", past: "updated",
		check: p.check,
		ready: func() (err error) {
			if !slices.ContainsFunc(updateFlags, fl.Changed) {
				return usagef("nothing to update: set --priority, --payload, --max-retries, --task-timeout, --not-before or --queue")
			}
			if r.GetQueue() != "" && slices.ContainsFunc(updateFlags[:len(updateFlags)-1], fl.Changed) {
				return usagef("--queue can't be combined with other changes: use two commands")
			}
			if fl.Changed("payload") {
				if r.Payload, err = readPayload(payload, a.in); err != nil {
					return usagef("invalid --payload: %w", err)
				}
			}
			return nil
		},
		apply: func(ctx context.Context, c *client.Client, t *target, n, total int) (changed, error) {
			if r.GetQueue() != "" && t.task != "" {
				return changed{}, usagef("--queue moves whole jobs: name job %s", t.job)
			}
			one := proto.CloneOf(r)
			one.Job, one.Task, one.IfVersion, one.IdempotencyKey = t.job, t.task, p.ifVersion, p.keyOf(n, total)
			done, err := c.Update(ctx, one)
			if r.GetQueue() != "" && errors.Is(err, client.ErrNotFound) {
				err = withHint(err, "dtaskctl queue list shows the queues, and dtaskctl list the jobs")
			}
			if err != nil {
				return changed{}, err
			}
			verb := "updated"
			if done.Existed {
				verb = "updated earlier with this key"
			}
			named := t.jobRef
			named.name = cmp.Or(done.Job.GetName(), named.name)
			job := &dtaskv1.Job{Name: named.name, Version: done.Version}
			return changed{line: fmt.Sprintf("%s %s: version %d", named.describe(), verb, done.Version), already: done.Existed, job: job}, nil
		},
		single: func(t *target, done *changed) any {
			return document.Update{ID: t.String(), Version: done.job.GetVersion(), Existed: done.already}
		},
	})
	return cmd
}

// setNotBefore parses a time, a duration from now, or now. The leader adds a
// duration to its own clock.
func setNotBefore(r *dtaskv1.UpdateRequest, text string) error {
	r.NotBefore, r.DelayMs = nil, nil
	if text == "now" {
		r.NotBefore = new(int64)
		return nil
	}
	if d, err := spec.ParseDuration(text); err == nil {
		r.DelayMs = new(d.Milliseconds())
		return nil
	}
	at, err := timestamp(text)
	r.NotBefore = new(at.UnixMilli())
	return err
}

// readPayload reads TEXT or @FILE. The result is never nil.
func readPayload(text string, in io.Reader) ([]byte, error) {
	path, isFile := strings.CutPrefix(text, "@")
	if !isFile {
		return []byte(text), nil
	}
	b, err := readInput(path, in, spec.MaxPayload)
	if err == nil && len(b) > spec.MaxPayload {
		err = fmt.Errorf("%s exceeds %d bytes", path, spec.MaxPayload)
	}
	return append([]byte{}, b...), err
}

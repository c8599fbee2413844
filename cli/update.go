package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func newUpdate(a *app) *cobra.Command {
	r := new(dtaskv1.UpdateRequest)
	var payload string
	cmd := &cobra.Command{
		Use:   "update JOB[/TASK]",
		Short: "Update tasks that have not started",
		Long: `Update one task, or all tasks of a job that have had no attempt. The update applies
completely or not at all. A job's new priority doesn't change tasks with a priority
of their own. The exit code is 5 if the task, or every task, has started.`,
		Example: `  dtaskctl update 42 --priority urgent
  dtaskctl update 42/fetch --payload @input.json --not-before 2h
  dtaskctl update @etl --priority urgent
  dtaskctl update 42/fetch --max-retries 5 --task-timeout 30m --if-version 3`,
		Args: oneArg,
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
	bind(fl, &r.IfVersion, "if-version", "", "update only if the job has this `VERSION`",
		integer[uint64](0, math.MaxInt64))
	fl.StringVar(&r.IdempotencyKey, "idempotency-key", "",
		"idempotency `KEY`; repeating it has no further effect")
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (_ view, err error) {
		if fl.Changed("payload") {
			if r.Payload, err = readPayload(payload, a.in); err != nil {
				return view{}, usagef("invalid --payload: %w", err)
			}
		}
		changes := []string{"priority", "payload", "max-retries", "task-timeout", "not-before"}
		if !slices.ContainsFunc(changes, fl.Changed) {
			return view{}, usagef("nothing to update: set --priority, --payload, --max-retries, --task-timeout or --not-before")
		}
		ref, err := a.ref(ctx, c, args[0])
		if err != nil {
			return view{}, err
		}
		r.Job, r.Task = ref.job, ref.task
		done, err := c.Update(ctx, r)
		if err != nil {
			return view{}, err
		}
		verb := "updated"
		if done.Existed {
			verb = "updated earlier with this key"
		}
		ref.name = cmp.Or(done.Job.GetName(), ref.name)
		return lines(document.Update{ID: ref.String(), Version: done.Version, Existed: done.Existed},
			fmt.Sprintf("%s %s: version %d", ref.describe(), verb, done.Version)), nil
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

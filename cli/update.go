package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// updated is what `update` prints.
type updated struct {
	ID      string `json:"id"` // as given: 42 or 42/fetch
	Version uint32 `json:"version"`
	Existed bool   `json:"existed"`
}

// updateFlags are what `update` changes, as typed.
type updateFlags struct {
	priority, payload, notBefore string
	timeout                      string
	retries                      uint32
	version                      uint64
	key                          string
}

func newUpdate(a *app) *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:   "update JOB[/TASK]",
		Short: "Change a task, or all tasks of a job, that have not started",
		Long: `Change what has not started, all of it or nothing: one task, or all tasks of a
job that have had no attempt. The priority of a job is given to those tasks that
did not have one of their own. Exit 5 if the task, or every task, has started.`,
		Example: `  dtaskctl update 42 --priority urgent
  dtaskctl update 42/fetch --payload @input.json --not-before 2h
  dtaskctl update 42/fetch --max-retries 5 --task-timeout 30m --if-version 3`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(cmd.Flags().Changed, a.in)
			if err != nil {
				return err
			}
			if r.Job, r.Task, err = taskRef(args[0]); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			done, err := c.Update(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.print(updated{ID: args[0], Version: done.Version, Existed: done.Existed}, func(w io.Writer) error {
				noun, verb := "job", "updated"
				if r.GetTask() != "" {
					noun = "task"
				}
				if done.Existed {
					verb = "was updated before"
				}
				if _, err := fmt.Fprintf(w, "%s %s %s: version %d\n", noun, args[0], verb, done.Version); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
				return nil
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.priority, "priority", "", "the new `PRIORITY`: low, normal, high, urgent")
	fl.StringVar(&f.payload, "payload", "", "the new payload of a task: `TEXT`, @FILE, or @- for standard input")
	fl.Uint32Var(&f.retries, "max-retries", 0, "repeats after the first attempt")
	fl.StringVar(&f.timeout, "task-timeout", "", "`DURATION` of one attempt, like 10m")
	fl.StringVar(&f.notBefore, "not-before", "", "earliest begin: a `TIME` like 2026-05-01T12:00:00Z, a duration from now like 2h, or now")
	fl.Uint64Var(&f.version, "if-version", 0, "only if the job has this version")
	fl.StringVar(&f.key, "idempotency-key", "", "`KEY` under which a repeat has no further effect")
	return cmd
}

// request reads the flags. Faults are of usage.
func (f *updateFlags) request(given func(string) bool, in io.Reader) (*dtaskv1.UpdateRequest, error) {
	r := &dtaskv1.UpdateRequest{IfVersion: f.version, IdempotencyKey: f.key}
	var err error
	if given("priority") {
		if r.Priority, err = spec.ParsePriority(f.priority); err != nil {
			return nil, usage("--priority: %w", err)
		}
	}
	if given("max-retries") {
		r.MaxRetries = new(f.retries)
	}
	if given("task-timeout") {
		d, err := spec.ParseDuration(f.timeout)
		if err == nil && d < time.Millisecond {
			err = fmt.Errorf("%s is below 1ms", f.timeout)
		}
		if err != nil {
			return nil, usage("--task-timeout: %w", err)
		}
		r.TimeoutMs = d.Milliseconds()
	}
	if given("not-before") {
		if err := setNotBefore(r, f.notBefore); err != nil {
			return nil, usage("--not-before: %w", err)
		}
	}
	if given("payload") {
		if r.Payload, err = payloadFrom(f.payload, in); err != nil {
			return nil, usage("--payload: %w", err)
		}
	}
	if !given("priority") && !given("max-retries") && !given("task-timeout") && !given("not-before") && !given("payload") {
		return nil, usage("%w", fmt.Errorf("nothing to change: give --priority, --payload, --max-retries, --task-timeout or --not-before"))
	}
	return r, nil
}

// usage is a fault of the command line.
func usage(format string, err error) error {
	return &usageError{err: fmt.Errorf(format, err), command: "dtaskctl update"}
}

// setNotBefore reads a time, a duration from now, or now.
func setNotBefore(r *dtaskv1.UpdateRequest, text string) error {
	if text == "now" {
		r.NotBefore = proto.Int64(0)
		return nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if at.UnixMilli() <= 0 {
			return fmt.Errorf("%s is too long ago", text)
		}
		r.NotBefore = new(at.UnixMilli())
		return nil
	}
	d, err := spec.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is neither a time like 2026-05-01T12:00:00Z nor a duration like 2h, nor now", text)
	}
	r.DelayMs = new(d.Milliseconds())
	return nil
}

// payloadFrom reads TEXT or @FILE. It is never nil.
func payloadFrom(text string, in io.Reader) ([]byte, error) {
	path, file := strings.CutPrefix(text, "@")
	if !file {
		return []byte(text), nil
	}
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the user's own file
		if err != nil {
			return nil, fmt.Errorf("opening payload: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, spec.MaxPayload+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading payload: %w", err)
	case len(b) > spec.MaxPayload:
		return nil, fmt.Errorf("%s has more than %d bytes", path, spec.MaxPayload)
	case b == nil:
		b = []byte{}
	}
	return b, nil
}

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// interruptLimit is how long an interrupted dtaskctl may take to end.
const interruptLimit = time.Minute

// Ctl runs dtaskctl against a cluster.
type Ctl struct {
	Programs Programs
	Addrs    []string // for DTASK_ADDR
	Env      []string // beside the usual
}

// Answer is how a run of dtaskctl ended.
type Answer struct {
	Args           []string
	Stdout, Stderr string
	Code           int           // exit code; -1 if it could not be run or was killed
	CPU            time.Duration // user and system time
}

// Run runs dtaskctl with these arguments. When ctx is done it is interrupted, as
// by a ctrl-C.
func (c Ctl) Run(ctx context.Context, args ...string) Answer { return c.RunWith(ctx, "", args...) }

// RunWith is Run with text on standard input.
func (c Ctl) RunWith(ctx context.Context, stdin string, args ...string) Answer {
	cmd := exec.CommandContext(ctx, c.Programs.Path(ctlProgram), args...)
	cmd.Env = append([]string{
		// Without a home directory, dtaskctl keeps no file for each of the many clusters.
		"PATH=" + os.Getenv("PATH"), "HOME=/", "DTASK_ADDR=" + strings.Join(c.Addrs, ","),
	}, c.Env...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptLimit
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	a := Answer{Args: args, Stdout: stdout.String(), Stderr: stderr.String()}
	if state := cmd.ProcessState; state != nil {
		a.CPU = state.UserTime() + state.SystemTime()
	}
	if err != nil {
		a.Code = -1
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			a.Code = exit.ExitCode()
		} else {
			a.Stderr += err.Error()
		}
	}
	return a
}

// String shows the run for messages.
func (a Answer) String() string {
	return fmt.Sprintf("dtaskctl %s: exit %d\n%s%s", strings.Join(a.Args, " "), a.Code, clip(a.Stdout), clip(a.Stderr))
}

func clip(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most] + "…\n"
	}
	return s
}

// Err is nil if the run ended with exit code 0.
func (a Answer) Err() error {
	if a.Code == 0 {
		return nil
	}
	return errors.New(a.String())
}

// Into reads standard output, which must be one JSON document and nothing else,
// into v. It does not look at the exit code.
func (a Answer) Into(v any) error {
	decoder := json.NewDecoder(strings.NewReader(a.Stdout))
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("standard output is no JSON document: %w\n%s", err, a)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("standard output is more than one JSON document\n%s", a)
	}
	return nil
}

// read runs dtaskctl with -o json and reads its document into v.
func (c Ctl) read(ctx context.Context, v any, args ...string) error {
	a := c.Run(ctx, append(args, "-o", "json")...)
	if err := a.Err(); err != nil {
		return err
	}
	return a.Into(v)
}

// Status is `cluster status`.
func (c Ctl) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.read(ctx, &s, "cluster", "status")
	return s, err
}

// ListWorkers is `worker list`.
func (c Ctl) ListWorkers(ctx context.Context) ([]WorkerInfo, error) {
	var list struct {
		Workers []WorkerInfo `json:"workers"`
	}
	err := c.read(ctx, &list, "worker", "list", "--limit", "0")
	return list.Workers, err
}

// Job is `status JOB`.
func (c Ctl) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	err := c.read(ctx, &j, "status", id)
	return j, err
}

// reachLimit is how long a submission may look for a leader.
const reachLimit = "5m"

// Submit submits a job file given as text and returns the job's id.
func (c Ctl) Submit(ctx context.Context, file string, args ...string) (string, error) {
	if !slices.Contains(args, "--wait") && !slices.Contains(args, "--timeout") { // with both, it bounds the wait
		args = append(slices.Clip(args), "--timeout", reachLimit)
	}
	a := c.RunWith(ctx, file, append([]string{"submit", "-", "-o", "json"}, args...)...)
	if err := a.Err(); err != nil {
		return "", err
	}
	var doc struct {
		ID string `json:"id"`
	}
	if err := a.Into(&doc); err != nil {
		return "", err
	}
	if doc.ID == "" {
		return "", fmt.Errorf("the document has no id\n%s", a)
	}
	return doc.ID, nil
}

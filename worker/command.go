package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/process"
)

// exitTemporary is the exit code of a failure that is always worth a repeat
// (EX_TEMPFAIL of sysexits.h).
const exitTemporary = 75

// resultFile is what $DTASK_RESULT_FILE adds to the path of the command's folder:
// beside it, so that a command finds its own folder empty.
const resultFile = ".result"

// runCommand runs an argument list or shell text in a folder of its own.
func (w *Worker) runCommand(a *attempt, inputs []string, out *output) *dtaskv1.Outcome {
	body := a.body
	if len(body.GetCommand()) == 0 && body.GetRun() == "" {
		return failed(&notStartedError{err: errors.New("the task has no command, shell text or type"), fatal: true})
	}
	dir := w.dirs.job(a.ref)
	if err := w.dirs.make(dir); err != nil {
		return failed(&notStartedError{err: err})
	}
	defer w.removeCommandDir(a.ref, dir)

	t := &a.invocation().task
	w.task(t, a, inputs, out)
	env, err := w.environ(a, t, dir+resultFile)
	if err != nil {
		return failed(&notStartedError{err: err, fatal: true})
	}
	stdin, err := standardInput(t)
	if err != nil {
		return failed(&notStartedError{err: err})
	}
	if closer, ok := stdin.(io.Closer); ok {
		defer func() { _ = closer.Close() }() // read only
	}
	log, err := w.openLog(a)
	if err != nil {
		return failed(&notStartedError{err: err})
	}
	lines := process.NewLines(func(p process.Progress) { t.Progress(p.Fraction, p.Text) })
	lines.OnCheckpoint = a.checkpointer.Load().request // environ made it
	complaints := process.NewLines(nil)
	exit, err := process.Run(a.ctx, process.Spec{
		Argv: body.GetCommand(), Shell: body.GetRun(), Env: env, Dir: dir, Stdin: stdin,
		// A full disk costs the log, never the work.
		Stdout:    io.MultiWriter(lines, bestEffortWriter{log.stdout}),
		Stderr:    io.MultiWriter(complaints, bestEffortWriter{log.stderr}),
		KillGrace: time.Duration(a.policy.GetKillGraceMs()) * time.Millisecond,
	})
	if a.log == nil {
		w.logs.close(a.ref)
	}
	last, _ := lines.Finish()
	complaint, _ := complaints.Finish()
	if err != nil {
		return commandError(exit, err)
	}
	return commandOutcome(exit, dir+resultFile, last, complaint)
}

// openLog begins the log of an attempt. Commands of several items write to one.
func (w *Worker) openLog(a *attempt) (*attemptLog, error) {
	if a.log != nil {
		return a.log, nil
	}
	log, err := w.logs.open(a.ref)
	if err == nil && a.assignment.Extras.GetArray().GetChunked() {
		a.log = log
	}
	return log, err
}

// environ is the command's whole environment.
func (w *Worker) environ(a *attempt, t *Task, result string) ([]string, error) {
	checkpoint, err := t.CheckpointDir()
	if err != nil {
		return nil, err
	}
	item, index := "", (*uint64)(nil)
	if a.item != nil {
		at := uint64(a.item.Index)
		item, index = a.item.Text(), &at
	}
	user := maps.Clone(a.jobContext.GetEnv())
	if user == nil {
		user = map[string]string{}
	}
	maps.Copy(user, a.policy.GetEnv())
	env, err := process.Environ(process.Vars{
		JobID: strconv.FormatUint(t.Job, 10), JobName: t.JobName, TaskID: t.ID,
		Attempt: t.Attempt, FencingToken: t.FencingToken,
		ExecutionID: t.ExecutionID(), IdempotencyKey: t.IdempotencyKey(), Worker: t.Worker,
		Input: strings.Join(t.Inputs, "\n"), Output: t.Output, Deadline: t.Deadline,
		ArrayIndex: index, ArraySize: a.assignment.Extras.GetArray().GetSize(), Item: item,
		CheckpointDir: checkpoint, ResultFile: result, JobOutcome: t.JobOutcome,
		Path: os.Getenv("PATH"), Home: os.Getenv("HOME"), Lang: os.Getenv("LANG"),
	}, user)
	if err != nil {
		return nil, fmt.Errorf("making the environment: %w", err)
	}
	return env, nil
}

// standardInput is the single input file, else the payload, else nothing.
func standardInput(t *Task) (io.Reader, error) {
	switch {
	case len(t.Inputs) == 1:
		return openInput(t.Inputs[0])
	case len(t.Payload) > 0:
		return bytes.NewReader(t.Payload), nil
	default:
		return nil, nil //nolint:nilnil // empty input
	}
}

// openInput opens a file, and refuses what could block for ever.
func openInput(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening the input: %w", err)
	}
	if info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDir) != 0 {
		return nil, fmt.Errorf("input %s is no file", path)
	}
	file, err := os.Open(path) //nolint:gosec // a path of the job file, on purpose
	if err != nil {
		return nil, fmt.Errorf("opening the input: %w", err)
	}
	return file, nil
}

// commandError is the outcome of a command whose run had a fault of its own. If
// the attempt was stopped, the ledger puts the cause in its place.
func commandError(exit process.Exit, err error) *dtaskv1.Outcome {
	var start *process.StartError
	if errors.As(err, &start) || errors.Is(err, process.ErrNoSupervisor) {
		return failed(&notStartedError{err: err})
	}
	out := failed(err)
	out.ExitCode, out.Signal = exitCode(exit), strings.TrimPrefix(exit.Signal, "SIG")
	return out
}

// commandOutcome judges how a command ended; complaint is the last line of its
// standard error, for people.
func commandOutcome(exit process.Exit, resultPath, lastLine, complaint string) *dtaskv1.Outcome {
	out := &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: exitCode(exit), Signal: strings.TrimPrefix(exit.Signal, "SIG")}
	switch {
	case exit.OOM:
		out.Error, out.ErrorName = "killed by SIGKILL, most likely for want of memory", "oom"
	case exit.Signal != "":
		out.Error = "killed by " + exit.Signal
	case exit.Code == exitTemporary:
		out.Error, out.Temporary = "exit code 75 (temporary)", true
	case exit.Code != 0:
		out.Error = fmt.Sprintf("exit code %d", exit.Code)
	default:
		result, err := commandResult(resultPath, lastLine)
		if err != nil {
			return failed(err)
		}
		out.Kind, out.Result = dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, result
	}
	if out.GetError() != "" && complaint != "" {
		out.Error = clip(out.GetError()+": "+complaint, maxError)
	}
	return out
}

// commandResult is what the command wrote to its result file, else the last line
// of its standard output, cut to 4 KiB.
func commandResult(path, lastLine string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // in the worker's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return []byte(lastLine[:min(len(lastLine), maxResult)]), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the result file: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	result, err := io.ReadAll(io.LimitReader(file, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("reading the result file: %w", err)
	}
	if len(result) > maxResult {
		return nil, Fatal(fmt.Errorf("the result file has more than %d bytes: write it to an output", maxResult))
	}
	return result, nil
}

// exitCode is 0 for a command that was killed.
func exitCode(exit process.Exit) int32 {
	return int32(max(0, min(exit.Code, 255))) //nolint:gosec // bounded
}

// removeFolder removes what a command had to itself.
func (w *Worker) removeCommandDir(r ref, dir string) {
	_ = os.Remove(dir + resultFile) // there is seldom one
	checkpoint := w.dirs.checkpoint(w.fence.clusterID(), r)
	w.dirs.removeEmpty(checkpoint)
	w.dirs.removeEmpty(filepath.Dir(checkpoint))
	if err := w.dirs.remove(dir); err != nil {
		w.log.Warn("removing a command's folder", r.attrs(), slog.String("dir", filepath.Base(dir)), slog.Any("error", err))
	}
}

// lossy writes what can be written and never fails.
type bestEffortWriter struct{ w io.Writer }

// Write reports success.
func (l bestEffortWriter) Write(p []byte) (int, error) {
	_, _ = l.w.Write(p)
	return len(p), nil
}

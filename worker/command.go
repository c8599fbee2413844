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
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/exitstatus"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/logs"
	"github.com/dtask/dtask/worker/process"
)

// resultFile is the suffix of $DTASK_RESULT_FILE: a path beside the command's
// directory, so that the directory is empty at the start.
const resultFile = ".result"

// runCommand runs an argument list or shell script in a directory of its own.
func (w *Worker) runCommand(a *attempt, inputs []string, out *output) *dtaskv1.Outcome {
	body := a.body
	if len(body.GetCommand()) == 0 && body.GetRun() == "" {
		return failed(&notStartedError{err: errors.New("task has no command, run or type"), fatal: true})
	}
	dir, began := w.dirs.job(a.ref), time.Now()
	a.slot.spares.claim(w.dirs, a)
	if err := a.slot.spares.work.make(w.dirs, dir, a.slot.programs.User); err != nil {
		return failed(&notStartedError{err: err})
	}
	defer func() {
		// The next attempt of a task may already use what a stopped one leaves.
		w.removeCommandDirs(a, dir, time.Since(began) < spareLimit && a.ctx.Err() == nil)
	}()

	t := &a.invocation().task
	w.task(t, a, inputs, out)
	result, err := w.dirs.resultPath(dir, a.slot.programs.User)
	if err != nil {
		return failed(&notStartedError{err: err})
	}
	env, err := w.environ(a, t, result)
	if err != nil {
		return failed(&notStartedError{err: err, fatal: true})
	}
	cwd := dir
	if body.GetCwd() != "" {
		if cwd, err = absolutePath(body.GetCwd()); err != nil {
			return failed(&notStartedError{err: err, fatal: true})
		}
	}
	log := w.openLog(a)
	defer closeLog(a, log)
	lines := process.NewLines(func(p process.Progress) { t.Progress(p.Fraction, p.Text) })
	lines.OnCheckpoint = a.checkpointer.Load().request // environ created it
	errorLines := process.NewLines(nil)
	var leased *process.Lease
	if len(a.policy.GetUses()) > 0 { // also at most once: when the lease ends, others take its place
		leased = w.lease.ofPrograms()
	}
	exit, err := w.runProgram(a, &process.Spec{
		Lease: leased,
		Argv:  argv(body, a.policy), Env: env, Dir: cwd, Umask: a.policy.Umask,
		Stdout:    io.MultiWriter(lines, log.stream(logs.Stdout)),
		Stderr:    io.MultiWriter(errorLines, log.stream(logs.Stderr)),
		KillGrace: time.Duration(a.policy.GetKillGraceMs()) * time.Millisecond,
	})
	last, lastError := lines.Finish(), errorLines.Finish()
	switch {
	case errors.Is(err, errNotBegun):
		return released(notBegun)
	case errors.Is(err, process.ErrLeaseEnded) && a.exclusive:
		return endedBy(ErrLeaseEnded)
	case errors.Is(err, process.ErrLeaseEnded):
		return endedBy(errLimitedLeaseEnded)
	case err != nil:
		return commandError(exit, err)
	}
	return commandOutcome(exit, lastError, func() (value []byte, err error) {
		err = a.slot.programs.User.Do(func() error {
			value, err = commandResult(result, last)
			return err
		})
		return value, err
	})
}

// openLog opens the log of an attempt. All items of an attempt share one.
func (w *Worker) openLog(a *attempt) *attemptLog {
	if a.log != nil {
		return a.log
	}
	log := w.logs.begin(a.ref)
	if a.assignment.Extras.GetArray().GetChunked() {
		a.log = log
	}
	return log
}

// closeLog ends the log of an attempt, unless further items will use it.
func closeLog(a *attempt, log *attemptLog) {
	if a.log == nil {
		log.end()
	}
}

// environ returns the command's complete environment.
func (w *Worker) environ(a *attempt, t *Task, result string) ([]string, error) {
	checkpoint, err := t.checkpointDir(func(path string) error { return a.slot.spares.checkpoint.make(w.dirs, path, a.slot.programs.User) })
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
	if len(a.slot.gpus) > 0 {
		for name, value := range w.devices.Environ(a.slot.gpus) {
			if _, set := user[name]; !set { // on purpose: its task knows better
				user[name] = value
			}
		}
	}
	if a.item != nil || a.body.GetScheduled() {
		scope := array.Scope{Item: a.item}
		if scope.Run, err = a.scheduledRun(a.body); err != nil {
			return nil, err
		}
		for name, text := range a.policy.GetEnv() {
			if user[name], err = array.Expand(text, scope, false); err != nil {
				return nil, fmt.Errorf("expanding %s of the environment: %w", name, err)
			}
		}
	}
	home, login := os.Getenv("HOME"), ""
	if other := a.slot.programs.User; other != nil {
		home, login = other.Home, other.Name
	}
	env, err := process.Environ(process.Vars{
		JobID: strconv.FormatUint(t.Job, 10), JobName: t.JobName, TaskID: t.ID,
		Attempt: t.Attempt, FencingToken: t.FencingToken,
		ExecutionID: t.ExecutionID(), IdempotencyKey: t.IdempotencyKey(), Worker: t.Worker,
		Input: strings.Join(t.Inputs, "\n"), Output: t.Output, Deadline: t.Deadline,
		ArrayIndex: index, ArraySize: a.assignment.Extras.GetArray().GetSize(), Item: item,
		CheckpointDir: checkpoint, ResultFile: result, JobOutcome: t.JobOutcome, SecretFiles: a.secrets.files(),
		ScheduledAt: instant(a.jobContext.GetRun().GetTickMs()), ScheduledPrevious: instant(a.jobContext.GetRun().GetPreviousMs()),
		Resources: a.policy.GetResources(), GPUs: a.slot.gpus,
		Path: os.Getenv("PATH"), Home: home, Login: login, Lang: os.Getenv("LANG"),
	}, user)
	if err != nil {
		return nil, fmt.Errorf("building the environment: %w", err)
	}
	return env, nil
}

// instant returns a Unix time in milliseconds; the zero time for 0.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// argv returns the arguments of a command. Shell texts end at the first command that
// fails: otherwise their success would say nothing about any but the last one.
func argv(body *dtaskv1.TaskBody, p *dtaskv1.TaskPolicy) []string {
	if body.GetRun() == "" {
		return body.GetCommand()
	}
	shell := p.GetShell()
	if len(shell) == 0 {
		shell = []string{"/bin/sh", "-e", "-c"}
	}
	return slices.Concat(shell, []string{body.GetRun()})
}

// standardInput returns the file that the task names, or the input file if there is
// exactly one, or the payload, or nil.
func standardInput(t *Task, file string) (io.Reader, error) {
	if file != "" {
		path, err := absolutePath(file)
		if err != nil {
			return nil, err
		}
		return openInput(path)
	}
	switch {
	case len(t.Inputs) == 1:
		return openInput(t.Inputs[0])
	case len(t.Payload) > 0:
		return bytes.NewReader(t.Payload), nil
	default:
		return nil, nil //nolint:nilnil // empty input
	}
}

// openInput opens a file, and rejects those that could block forever.
func openInput(path string) (file *os.File, err error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDir) != 0 {
		err = errors.New(path + " is not a file")
	}
	if err == nil {
		file, err = os.Open(path) //nolint:gosec // a path of the job file, on purpose
	}
	if err != nil {
		return nil, fmt.Errorf("opening input: %w", err)
	}
	return file, nil
}

// commandError returns the outcome of a command that could not be run or
// supervised. If the attempt was stopped, the attempt table replaces it.
func commandError(exit process.Exit, err error) *dtaskv1.Outcome {
	if _, notStarted := errors.AsType[*notStartedError](err); notStarted {
		return failed(err)
	}
	var start *process.StartError
	if errors.As(err, &start) || errors.Is(err, process.ErrNoSupervisor) {
		return failed(&notStartedError{err: err})
	}
	out := failed(err)
	out.ExitCode, out.Signal = exitCode(exit), strings.TrimPrefix(exit.Signal, "SIG")
	return out
}

// commandOutcome returns the outcome of a command that ended. lastError is the last line
// of its standard error; result reads its result.
func commandOutcome(exit process.Exit, lastError string, result func() ([]byte, error)) *dtaskv1.Outcome {
	signal := strings.TrimPrefix(exit.Signal, "SIG")
	if exit.Code == 0 && signal == "" {
		value, err := result()
		if err != nil {
			return failed(err)
		}
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: value}
	}
	status := exitstatus.Status{Code: int(exitCode(exit)), Signal: exit.Signal, OOM: exit.OOM}
	out := &dtaskv1.Outcome{
		Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: exitCode(exit), Signal: signal,
		Error: clip(status.WithOutput(lastError), maxError),
	}
	switch {
	case exit.OOM:
		out.ErrorName = "oom"
	case signal == "" && exit.Code == exitstatus.Temporary:
		out.Temporary = true
	}
	return out
}

// commandResult returns the contents of the command's result file, or, without
// one, the last line of its standard output, cut to 4 KiB.
func commandResult(path, lastLine string) (result []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // in the worker's own directory; a pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		return []byte(lastLine[:min(len(lastLine), maxResult)]), nil
	}
	if err == nil {
		if info, statErr := file.Stat(); statErr == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file")
		} else {
			result, err = io.ReadAll(io.LimitReader(file, maxResult+1))
		}
		_ = file.Close() // read only
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading result file: %w", err)
	case len(result) > maxResult:
		return nil, Fatal(fmt.Errorf("result file too large: more than %d bytes: write it to an output", maxResult))
	}
	return result, nil
}

// exitCode returns the exit code for the outcome; 0 for a command that was
// killed.
func exitCode(exit process.Exit) int32 {
	return int32(max(0, min(exit.Code, 255))) //nolint:gosec // bounded
}

// removeCommandDirs removes a command's directory and result file, and its
// checkpoint directory if that is empty; or keeps empty ones as spares.
func (w *Worker) removeCommandDirs(a *attempt, dir string, spare bool) {
	w.dirs.removeResult(dir)
	if c := a.checkpointer.Load(); c != nil {
		// Nothing was saved, here or earlier.
		none := !c.requested && a.ref.attempt == 1
		// The task's next attempt, which may run in another slot, uses the same
		// path, so the spare gets another one.
		kept := a.slot.spares.checkpoint.keep(spare && none, c.dir+spareSuffix)
		if kept || w.dirs.removeEmpty(c.dir) && none {
			a.checkpointer.Store(nil) // nothing will have to be discarded
		}
	}
	if a.slot.spares.work.keep(spare, dir) {
		return
	}
	if err := remove(dir); err != nil {
		w.log.Warn("removing a command's directory failed", a.attrs(), slog.String("dir", filepath.Base(dir)), slog.Any("err", err))
	}
}

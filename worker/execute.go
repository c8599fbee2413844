package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// slot executes attempts one after another until there are none.
func (w *Worker) slot() {
	for a := w.ledger.next(nil, nil); a != nil; {
		outcome := w.execute(a)
		if w.debug {
			w.log.Debug("attempt ended", a.attrs(), slog.String("task_id", a.assignment.GetTaskId()), slog.String("outcome", outcome.GetKind().String()))
		}
		a = w.ledger.next(a, outcome)
	}
}

// execute runs an attempt to its end and says how it ended. Whether a stop came
// first is for the ledger to decide.
func (w *Worker) execute(a *attempt) *dtaskv1.Outcome {
	if a.policy.GetHeartbeatTimeoutMs() > 0 {
		defer w.ledger.watchHeartbeat(a)()
	}
	body := a.assignment.GetBody()
	inputs, err := localPaths(body.GetInputs())
	if err != nil {
		return failed(&notStartedError{err: err, fatal: true})
	}
	out, err := prepareOutput(body.GetOutput(), a.ref)
	if err != nil {
		return failed(err)
	}
	run := w.runCommand
	if a.policy.GetType() != "" {
		run = w.runHandler
	}
	outcome := run(a, inputs, out)
	if out == nil {
		return outcome
	}
	defer out.discard()
	if outcome.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
		return outcome
	}
	done, err := out.publish(a.ctx, func() bool { return w.ledger.commit(a) })
	if err != nil {
		return failed(err)
	}
	outcome.OutputSize, outcome.OutputSha256 = done.size, done.sha256
	return outcome
}

// runHandler calls the registered handler of the task's type.
func (w *Worker) runHandler(a *attempt, inputs []string, out *output) *dtaskv1.Outcome {
	handler := w.handlers[a.policy.GetType()]
	if handler == nil {
		return failed(&notStartedError{err: fmt.Errorf("this worker has no handler for type %q", a.policy.GetType())})
	}
	t := w.task(a, inputs, out)
	result, err := w.call(a, handler, t)
	if err != nil {
		return failed(err)
	}
	if len(result) > maxResult {
		return failed(Fatal(fmt.Errorf("the result has %d bytes, more than %d: write it to an output", len(result), maxResult)))
	}
	return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: result}
}

// task is what the handler sees.
func (w *Worker) task(a *attempt, inputs []string, out *output) *Task {
	t := &Task{
		Job: a.job, JobName: a.shared.GetJobName(),
		ID: a.assignment.GetTaskId(), Index: a.task,
		Attempt: a.ref.attempt, Failures: a.assignment.GetFailures(),
		FencingToken: a.assignment.GetFencingToken(),
		Worker:       w.cfg.Name,
		Payload:      a.assignment.GetBody().GetPayload(),
		Inputs:       inputs,
		attempt:      a, worker: w,
	}
	if out != nil {
		t.Output = out.aside
	}
	t.Deadline, _ = a.ctx.Deadline()
	return t
}

// call turns a panic of the handler into an error; its stack goes into the
// attempt's log.
func (w *Worker) call(a *attempt, handler Handler, t *Task) (result []byte, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		stack := debug.Stack()
		err = fmt.Errorf("panic: %v", cause)
		if logErr := w.logs.write(a.ref, fmt.Appendf(nil, "%v\n\n%s", err, stack)); logErr != nil {
			w.log.Warn("writing a handler's panic to its log", a.attrs(), slog.Any("error", logErr), slog.String("stack", string(stack)))
		}
	}()
	return handler(a.ctx, t)
}

// failed is the outcome of an attempt that ended with this error.
func failed(err error) *dtaskv1.Outcome {
	out := &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Error: clip(err.Error(), maxError)}
	if notStarted, ok := errors.AsType[*notStartedError](err); ok {
		out.Kind, out.Fatal = dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED, notStarted.fatal
		return out
	}
	v := verdictOn(err)
	out.Fatal, out.Temporary, out.ExitCode, out.ErrorName = v.fatal, v.temporary, v.exit, clip(v.name, maxName)
	return out
}

// discardCheckpoints removes the checkpoints of tasks that have completed.
func (w *Worker) discardCheckpoints(completed []*attempt) {
	for _, a := range completed {
		if err := w.dirs.remove(w.dirs.checkpoint(w.fence.clusterID(), a.ref)); err != nil {
			w.log.Warn("removing a checkpoint", a.attrs(), slog.Any("error", err))
		}
	}
}

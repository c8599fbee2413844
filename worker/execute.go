package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/logs"
	"github.com/dtask/dtask/worker/process"
)

// A slot executes one attempt at a time. It holds what only this attempt needs, so that waiting
// attempts take less memory.
type slot struct {
	spares   spareDirs
	programs *process.Pool // runs the commands of the attempt
	gpus     []string      // those that the attempt may use; nil: none has an index
}

// slot executes one attempt after another until none is ready.
func (w *Worker) slot() {
	var s slot
	defer s.spares.drop(w.dirs)
	for a := w.attempts.next(nil, nil); a != nil; {
		outcome := w.execute(a, &s)
		if w.debug {
			w.log.Debug("attempt ended", a.attrs(), slog.String("task_id", a.assignment.ID), slog.String("outcome", outcome.GetKind().String()))
		}
		a = w.attempts.next(a, outcome)
	}
}

// execute runs an attempt in a slot and returns its outcome. The attempt table decides
// whether a stop came first.
func (w *Worker) execute(a *attempt, s *slot) *dtaskv1.Outcome {
	a.slot = s
	returnGPUs, err := w.takeGPUs(a)
	if err != nil {
		return failed(&notStartedError{err: err}) // if it was stopped, the attempt table replaces it
	}
	defer returnGPUs()
	if a.policy.GetHeartbeatTimeoutMs() > 0 {
		defer w.attempts.watchHeartbeat(a)()
	}
	programs, err := w.poolOf(a)
	if err != nil {
		return failed(err)
	}
	a.slot.programs = programs
	if err := w.restore(a); err != nil {
		return failed(&notStartedError{err: err})
	}
	secrets, err := w.takeSecrets(a)
	if err != nil {
		return failed(&notStartedError{err: err})
	}
	defer secrets.remove(w, a)
	a.secrets = secrets
	outcome := w.runItems(a)
	w.finishCheckpoints(a, outcome)
	return outcome
}

// runTask executes the task, or one item of an array, and publishes its output.
func (w *Worker) runTask(a *attempt) *dtaskv1.Outcome {
	body := a.body
	inputs, err := localPaths(body.GetInputs())
	if err != nil {
		return failed(&notStartedError{err: err, fatal: true})
	}
	out, err := prepareOutput(body.GetOutput(), a.ref, w.userOf(a))
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
	done, err := out.publish(a.ctx, func() bool { return w.attempts.commit(a) })
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
		return failed(&notStartedError{err: fmt.Errorf("no handler for task type %q on this worker", a.policy.GetType())})
	}
	v := a.invocation()
	w.task(&v.task, a, inputs, out)
	a.ctx.task = &v.task
	if !w.attempts.begin(a) {
		return released(notBegun)
	}
	result, err := w.call(a, handler, &v.task)
	if err != nil {
		return failed(err)
	}
	if len(result) > maxResult {
		return failed(Fatal(fmt.Errorf("result too large: %d bytes exceed %d: write it to an output", len(result), maxResult)))
	}
	v.success.Kind, v.success.Result = dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, result
	return &v.success
}

// task fills in the Task of a handler or command.
func (w *Worker) task(t *Task, a *attempt, inputs []string, out *output) {
	*t = Task{
		Job: a.job, JobName: a.jobContext.GetJobName(),
		ID: a.assignment.ID, Index: a.task,
		Attempt: a.ref.attempt, Failures: a.assignment.Failures,
		Resources:    a.policy.GetResources(),
		GPUs:         a.slot.gpus,
		FencingToken: a.token,
		Worker:       w.name,
		Payload:      a.body.GetPayload(),
		Inputs:       inputs,
		JobOutcome:   jobOutcomes[a.assignment.Extras.GetJobOutcome()],
		attempt:      a, worker: w,
	}
	if out != nil {
		t.Output = out.temp
	}
	if a.item != nil {
		index := a.item.Index
		t.ArrayIndex, t.Item, t.chunked = &index, a.item.JSON, a.assignment.Extras.GetArray().GetChunked()
	}
	t.Deadline, _ = a.ctx.Deadline()
}

// jobOutcomes are the values of Task.JobOutcome.
var jobOutcomes = map[dtaskv1.JobState]string{
	dtaskv1.JobState_JOB_STATE_COMPLETED: "completed",
	dtaskv1.JobState_JOB_STATE_FAILED:    "failed",
	dtaskv1.JobState_JOB_STATE_CANCELLED: "cancelled",

	dtaskv1.JobState_JOB_STATE_UNSPECIFIED: "",
	dtaskv1.JobState_JOB_STATE_PENDING:     "",
	dtaskv1.JobState_JOB_STATE_RUNNING:     "",
}

// call calls the handler. It turns a panic into an error with the innermost calls, and
// writes the whole stack to the attempt's log.
func (w *Worker) call(a *attempt, handler Handler, t *Task) (result []byte, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		stack := debug.Stack()
		err = panicError(cause)
		log := w.logs.begin(a.ref)
		_, _ = log.stream(logs.Stderr).Write(fmt.Appendf(nil, "panic: %v\n\n%s", cause, stack)) // always succeeds
		log.end()
	}()
	return handler(a.ctx, t)
}

// failed returns the outcome of an attempt that ended with this error.
func failed(err error) *dtaskv1.Outcome {
	out := &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Error: clip(err.Error(), maxError)}
	if notStarted, ok := errors.AsType[*notStartedError](err); ok {
		out.Kind, out.Fatal = dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED, notStarted.fatal
		return out
	}
	h := markedBy(err)
	out.Fatal, out.Temporary, out.ExitCode, out.ErrorName = h.fatal, h.temporary, h.exit, clip(h.name, maxName)
	return out
}

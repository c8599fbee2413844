package api

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/statetext"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// maxDelay is how far a task's start may be put off.
	maxDelay = 10 * 365 * 24 * time.Hour
	// maxRetries is the largest number that a retry policy takes.
	maxRetries = 1_000_000
)

// Update implements JobService.
func (j *jobs) Update(ctx context.Context, r *dtaskv1.UpdateRequest) (*dtaskv1.UpdateResponse, error) {
	done, err := j.once(ctx, r, func(c change) (sequencer.ChangeResult, error) { return j.update(ctx, c, r) })
	if err != nil {
		return nil, err
	}
	job, err := j.changedJob(r.GetJob(), done)
	return &dtaskv1.UpdateResponse{Job: job, Version: done.Version, Existed: done.Existed}, err
}

// update makes an update.
func (j *jobs) update(ctx context.Context, c change, r *dtaskv1.UpdateRequest) (sequencer.ChangeResult, error) {
	none := sequencer.ChangeResult{}
	if r.GetQueue() != "" {
		if !movesOnly(r) {
			return none, invalid("queue requires a whole job, and no other change: send two updates")
		}
		if err := spec.CheckName(r.GetQueue()); err != nil {
			return none, invalid("queue: %v", err)
		}
		done, err := j.move(ctx, c, r)
		if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok {
			return none, j.explainNotUpdated(&c, &sequencer.Change{Update: fsm.Update{WholeJob: true}}, rejected)
		}
		return done, err
	}
	if err := j.checkUpdate(r); err != nil {
		return none, err
	}
	var names []string
	if r.GetTask() != "" {
		names = []string{r.GetTask()}
	}
	s, err := j.selectTasks(ctx, c, names)
	if err != nil {
		return none, err
	}
	if r.Payload != nil {
		if err := s.admitPayload(caller(ctx)); err != nil {
			return none, err
		}
	}
	u, err := s.update(r)
	if err != nil {
		return none, err
	}
	done, err := s.leader.Update(ctx, u)
	if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok {
		return none, j.explainNotUpdated(&c, &u, rejected)
	}
	return done, err
}

// checkUpdate checks a request without the state.
func (j *jobs) checkUpdate(r *dtaskv1.UpdateRequest) error {
	_, known := dtaskv1.Priority_name[int32(r.GetPriority())]
	switch {
	case !known:
		return invalid("invalid priority %d", r.GetPriority())
	case r.GetMaxRetries() > maxRetries:
		return invalid("invalid max_retries %d: must be 0 to %d", r.GetMaxRetries(), maxRetries)
	case r.GetTimeoutMs() < 0:
		return invalid("invalid timeout_ms %d: must be above 0", r.GetTimeoutMs())
	case r.NotBefore != nil && r.DelayMs != nil:
		return invalid("not_before and delay_ms are mutually exclusive")
	case r.GetNotBefore() < 0:
		return invalid("invalid not_before %d: must be a time, or 0 for immediately", r.GetNotBefore())
	case r.GetDelayMs() < 0 || r.GetDelayMs() > maxDelay.Milliseconds():
		return invalid("invalid delay_ms %d: must be 0 to %d", r.GetDelayMs(), maxDelay.Milliseconds())
	case r.Payload != nil && r.GetTask() == "":
		return invalid("payload requires a task")
	case len(r.GetPayload()) > j.cfg.MaxPayload:
		return invalid("invalid payload of %d bytes: must be at most %d", len(r.GetPayload()), j.cfg.MaxPayload)
	case r.GetPriority() == 0 && r.MaxRetries == nil && r.GetTimeoutMs() == 0 && r.Payload == nil && r.NotBefore == nil && r.DelayMs == nil:
		return invalid("empty update: set at least one field")
	}
	return nil
}

// admitPayload checks that a caller may change the payloads of a job. They are the input of
// its commands, which a worker may run with the rights of the job's owner on its machine.
func (s *selection) admitPayload(p *auth.Principal) error {
	job, ok := s.st.Job(s.id)
	if owner := job.Header.GetOwner(); ok && p.Role != auth.Admin && owner != p.Name {
		return denied("payload: the job belongs to %s: only its owner and admins may change what its tasks read", quote(owner))
	}
	return nil
}

// update builds the sequencer's change from a request.
func (s *selection) update(r *dtaskv1.UpdateRequest) (c sequencer.Change, err error) {
	c = sequencer.Change{Generated: s.generated, Update: fsm.Update{
		Job: s.id, WholeJob: len(s.tasks) == 0, Precondition: s.required,
		Priority: r.GetPriority(), MaxRetries: r.GetMaxRetries(), TimeoutMS: r.GetTimeoutMs(),
	}}
	set := func(given bool, f fsm.UpdateFields) {
		if given {
			c.Set |= f
		}
	}
	set(r.GetPriority() != 0, fsm.SetPriority)
	set(r.MaxRetries != nil, fsm.SetMaxRetries)
	set(r.GetTimeoutMs() != 0, fsm.SetTimeout)
	set(r.NotBefore != nil || r.DelayMs != nil, fsm.SetNotBefore)
	set(r.Payload != nil, fsm.SetBody)
	c.Delay = time.Duration(r.GetDelayMs()) * time.Millisecond
	if r.GetNotBefore() > 0 {
		c.NotBefore = time.UnixMilli(r.GetNotBefore())
	}
	if c.WholeJob {
		return c, nil
	}
	c.Task = s.tasks[0]
	if r.Payload != nil {
		// The rest of a body never changes, so that any state will do.
		c.Body, err = taskbody.WithPayload(s.st.Body(s.ref(c.Task)), r.GetPayload())
	}
	return c, err
}

// explainNotUpdated explains the rejection of an update by the current state, which is
// at least as new as the one that rejected it.
func (j *jobs) explainNotUpdated(c *change, u *sequencer.Change, rejection *sequencer.RejectedError) error {
	if err := j.explainPrecondition(c, rejection); err != nil {
		return err
	}
	st, _ := j.cfg.Machine.Fork()
	job, ok := st.Job(c.id)
	if !ok {
		return jobNotFound(c.id)
	}
	ref := fsm.TaskRef{Job: c.id, Index: u.Task}
	is := func(r fsm.Reason) bool { return rejection.Reason == r }
	switch {
	case is(fsm.AlreadyEnded):
		return conflict("job %d %s: it can no longer be updated", c.id, statetext.Predicate(job.State.String()))
	case is(fsm.LimitExceeded):
		return refused("job %d has too many different policies", c.id)
	case is(fsm.WrongState):
		if u.WholeJob {
			return conflict("every task of job %d has started: nothing to update", c.id)
		}
		t, _ := st.Task(ref)
		state := statetext.Predicate(t.State.String())
		if t.State.Terminal() && t.Attempt == 0 {
			return conflict("%s %s: it can no longer be updated", describeTask(st, ref), state)
		}
		return conflict("%s has started: it %s in attempt %d", describeTask(st, ref), state, t.Attempt)
	}
	return rejection
}

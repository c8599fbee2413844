package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxDelay is the furthest that a task may be put off.
	maxDelay = 10 * 365 * 24 * time.Hour
	// mostRetries is what a retry policy takes.
	mostRetries = 1_000_000
)

// Update implements JobService.
func (j *jobs) Update(ctx context.Context, r *dtaskv1.UpdateRequest) (*dtaskv1.UpdateResponse, error) {
	if err := j.checkUpdate(r); err != nil {
		return nil, err
	}
	var names []string
	if r.GetTask() != "" {
		names = []string{r.GetTask()}
	}
	s, err := j.choose(ctx, r.GetJob(), names)
	if err != nil {
		return nil, err
	}
	c, err := s.change(r)
	if err != nil {
		return nil, err
	}
	done, err := s.leader.Update(ctx, c)
	if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok {
		err = j.whyNotUpdated(&c, rejected)
	}
	if err != nil {
		return nil, err
	}
	view, err := j.jobView(ctx, s.job.ID)
	return &dtaskv1.UpdateResponse{Job: view, Version: done.Version, Existed: done.Existed}, err
}

// checkUpdate refuses what makes no sense whatever the state is.
func (j *jobs) checkUpdate(r *dtaskv1.UpdateRequest) error {
	if n := len(r.GetIdempotencyKey()); n < 1 || n > maxKey {
		return invalid("idempotency_key: has %d bytes; send 1 to %d", n, maxKey)
	}
	_, known := dtaskv1.Priority_name[int32(r.GetPriority())]
	switch {
	case !known:
		return invalid("priority: %d is not known", r.GetPriority())
	case r.GetMaxRetries() > mostRetries:
		return invalid("max_retries: is %d; send 0 to %d", r.GetMaxRetries(), mostRetries)
	case r.GetTimeoutMs() < 0:
		return invalid("timeout_ms: is negative; send a duration above 0")
	case r.NotBefore != nil && r.DelayMs != nil:
		return invalid("not_before, delay_ms: send one of them")
	case r.GetNotBefore() < 0:
		return invalid("not_before: is negative; send a time, or 0 for at once")
	case r.GetDelayMs() < 0 || r.GetDelayMs() > maxDelay.Milliseconds():
		return invalid("delay_ms: is %d; send 0 to %d", r.GetDelayMs(), maxDelay.Milliseconds())
	case r.Payload != nil && r.GetTask() == "":
		return invalid("payload: belongs to a task; name one")
	case len(r.GetPayload()) > j.cfg.MaxPayload:
		return invalid("payload: has %d bytes; send at most %d", len(r.GetPayload()), j.cfg.MaxPayload)
	case r.GetPriority() == 0 && r.MaxRetries == nil && r.GetTimeoutMs() == 0 && r.Payload == nil && r.NotBefore == nil && r.DelayMs == nil:
		return invalid("update: changes nothing; send what is to be changed")
	}
	return nil
}

// change makes what the leader is asked for.
func (s *choice) change(r *dtaskv1.UpdateRequest) (sequencer.Change, error) {
	digest, err := digestOf(r)
	if err != nil {
		return sequencer.Change{}, err
	}
	c := sequencer.Change{Generated: r.GetGeneratedKey(), Update: fsm.Update{
		Job: s.job.ID, WholeJob: len(s.tasks) == 0, IfVersion: r.GetIfVersion(), Key: r.GetIdempotencyKey(), Digest: digest,
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
		// The rest of a body never changes, so that it may be as old as it likes.
		c.Body, err = taskbody.WithPayload(s.st.Body(fsm.TaskRef{Job: c.Job, Index: c.Task}), r.GetPayload())
	}
	return c, err
}

// digestOf is what a key is kept with: of all that was sent but the key.
func digestOf(r *dtaskv1.UpdateRequest) (digest [16]byte, err error) {
	bare := proto.CloneOf(r)
	bare.IdempotencyKey, bare.GeneratedKey = "", false
	b, err := deterministic.Marshal(bare)
	if err != nil {
		return digest, fmt.Errorf("encoding update: %w", err)
	}
	sum := sha256.Sum256(append([]byte("update\x00"), b...))
	copy(digest[:], sum[:])
	return digest, nil
}

// whyNotUpdated says what the refusal of an update means, by the state as it is
// now, which is at least as new as the one that refused.
func (j *jobs) whyNotUpdated(c *sequencer.Change, refusal *sequencer.RejectedError) error {
	st, _ := j.cfg.Machine.Fork()
	job, ok := st.Job(c.Job)
	if !ok {
		return noSuchJob(c.Job)
	}
	ref := fsm.TaskRef{Job: c.Job, Index: c.Task}
	switch refusal.Reason {
	case fsm.KeyConflict:
		return &Error{Kind: KindConflict, Message: "the idempotency key was used for something else"}
	case fsm.VersionMismatch:
		return conflict("job %d has version %d, and the update is for version %d; look at it again", c.Job, job.Version, c.IfVersion)
	case fsm.AlreadyEnded:
		return conflict("job %d has ended: it is %s", c.Job, job.State)
	case fsm.LimitExceeded:
		return refused("job %d has too many different policies by now", c.Job)
	case fsm.WrongState:
		if c.WholeJob {
			return conflict("every task of job %d has started: there is nothing to update", c.Job)
		}
		t, _ := st.Task(ref)
		if t.State.Terminal() && t.Attempt == 0 {
			return conflict("task %s of job %d has ended: it is %s", quote(st.Name(ref)), c.Job, t.State)
		}
		return conflict("task %s of job %d has started: it is %s in attempt %d", quote(st.Name(ref)), c.Job, t.State, t.Attempt)
	case fsm.Accepted, fsm.JobNotFound, fsm.TaskNotFound, fsm.WorkerNotFound, fsm.StaleAttempt, fsm.AlreadyAccepted, fsm.OutOfOrder, fsm.Malformed, fsm.BudgetExceeded:
	}
	return refusal
}

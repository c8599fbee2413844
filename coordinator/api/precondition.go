package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// changeRequest is a request to change a job.
type changeRequest interface {
	proto.Message
	GetJob() string
	GetIfVersion() uint64
	GetIdempotencyKey() string
	GetGeneratedKey() bool
}

// change is a change of a job that no request with its key has made.
type change struct {
	leader    Leader
	st        *fsm.State // confirmed by a quorum; the key is unused
	id        fsm.JobID
	foreign   bool // the caller must not know of the job: it gets the error for an unknown one
	required  fsm.Precondition
	generated bool // a program generated the key
}

// once makes the change that a request asks for, unless an earlier request with the same
// key made it; then it returns the first outcome. Every method with such a key calls it,
// and has accessLeader: a deposed leader must report neither an unused key nor an unknown
// task.
//
// Invariant: the key is looked up before everything that may change until the request is
// repeated. Otherwise a client that repeats an unknown outcome gets a definite failure,
// although the change was made. So apply checks whether the job exists, is archived and
// has the required version, which tasks a name means, and configured limits. It reads
// the state in which the key is unused: a later one may have the effects of the same
// request, if it was in flight.
func (j *jobs) once(ctx context.Context, r changeRequest, apply func(c change) (sequencer.ChangeResult, error)) (done sequencer.ChangeResult, err error) {
	c := change{generated: r.GetGeneratedKey()}
	if c.id, err = jobID(r.GetJob()); err != nil {
		return done, err
	}
	if c.required, err = precondition(r); err != nil {
		return done, err
	}
	if c.leader, err = j.leader(); err != nil {
		return done, err
	}
	c.st, _ = j.cfg.Machine.Fork()
	scopes, err := j.keyScopes(caller(ctx), &c)
	if err != nil {
		return done, err
	}
	for _, namespace := range scopes {
		c.required.Key = fsm.ScopedKey(namespace, r.GetIdempotencyKey())
		done, known, err := sequencer.FirstOutcome(c.st, c.id, &c.required)
		switch {
		case err != nil:
			return done, keyConflict()
		case known:
			return done, nil
		}
	}
	return apply(c)
}

// keyScopes returns the namespaces whose keys a change may have used: that of its job. A
// repeated request may find the job expired. Then all of the caller's are possible, or
// the default one if the caller has no list of namespaces.
func (j *jobs) keyScopes(p *auth.Principal, c *change) ([]string, error) {
	var h *dtaskv1.JobHeader
	if job, ok := c.st.Job(c.id); ok {
		h = job.Header
	} else if head, ok, err := j.archivedJob(c.id); err != nil {
		return nil, err
	} else if ok {
		h = head.Header
	}
	c.foreign = h != nil && !sees(p, h)
	switch {
	case h != nil && !c.foreign:
		return []string{namespaceOf(h)}, nil
	case p.SeesAll():
		return []string{auth.DefaultNamespace}, nil
	}
	return p.Namespaces, nil
}

// changedJob shows a job after a change. A repeated request may find the job expired, or
// in the part of history that this replica lacks. The change was made all the same, so
// that the job then has only its id and the version after the change.
func (j *jobs) changedJob(job string, done sequencer.ChangeResult) (*dtaskv1.Job, error) {
	id, err := jobID(job)
	if err != nil {
		return nil, err
	}
	shown, err := j.currentJob(id)
	if _, unreadable := errors.AsType[*Error](err); unreadable {
		return &dtaskv1.Job{Id: job, Version: done.Version}, nil
	}
	return shown, err
}

// precondition returns what a request requires. Its digest is that of the whole request
// but its key: a key belongs to one content of one kind of request. The request is as
// the client sent it: the state in which it arrives must not change its digest.
func precondition(r changeRequest) (fsm.Precondition, error) {
	p := fsm.Precondition{IfVersion: r.GetIfVersion(), Key: r.GetIdempotencyKey()}
	bare := proto.Clone(r).ProtoReflect()
	fields := bare.Descriptor().Fields()
	bare.Clear(fields.ByName("idempotency_key"))
	bare.Clear(fields.ByName("generated_key"))
	b, err := deterministic.Marshal(bare.Interface())
	if err != nil {
		return p, fmt.Errorf("encoding request: %w", err)
	}
	kind := bare.Descriptor().FullName()
	sum := sha256.Sum256(append([]byte(kind+"\x00"), b...))
	copy(p.Digest[:], sum[:])
	return p, nil
}

// explainPrecondition explains a rejection because of the key or the version by the
// current state. It returns nil for other errors.
func (j *jobs) explainPrecondition(c *change, err error) error {
	switch {
	case isRejected(err, fsm.KeyConflict):
		return keyConflict()
	case isRejected(err, fsm.VersionMismatch):
		st, _ := j.cfg.Machine.Fork()
		job, ok := st.Job(c.id)
		if !ok {
			return jobNotFound(c.id)
		}
		return versionMismatch(&job, &c.required)
	}
	return nil
}

func keyConflict() error {
	return &Error{Kind: KindConflict, Message: "the idempotency key was used for another request"}
}

func versionMismatch(job *fsm.Job, p *fsm.Precondition) error {
	return conflict("job %d has version %d, and the request expects version %d: read the job again", job.ID, job.Version, p.IfVersion)
}

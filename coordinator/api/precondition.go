package api

import (
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// changeRequest is a request to change a job.
type changeRequest interface {
	proto.Message
	GetIfVersion() uint64
	GetIdempotencyKey() string
}

// precondition returns what a request requires. Its digest is that of the whole request
// but its key: a key belongs to one content of one kind of request.
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

// firstOutcome returns the outcome of an earlier request with the same key. known is
// false if this is the first request; then the job has the required version.
func (s *selection) firstOutcome(p *fsm.Precondition) (r sequencer.ChangeResult, known bool, err error) {
	r, known, err = sequencer.FirstOutcome(s.st, s.job.ID, p)
	switch {
	case err != nil:
		return r, known, keyConflict()
	case !known && p.IfVersion != 0 && p.IfVersion != uint64(s.job.Version):
		return r, false, versionMismatch(&s.job, p)
	}
	return r, known, nil
}

// explainPrecondition explains a rejection because of the key or the version by the
// current state. It returns nil for other errors.
func (j *jobs) explainPrecondition(id fsm.JobID, p *fsm.Precondition, err error) error {
	switch {
	case isRejected(err, fsm.KeyConflict):
		return keyConflict()
	case isRejected(err, fsm.VersionMismatch):
		st, _ := j.cfg.Machine.Fork()
		job, ok := st.Job(id)
		if !ok {
			return jobNotFound(id)
		}
		return versionMismatch(&job, p)
	}
	return nil
}

func keyConflict() error {
	return &Error{Kind: KindConflict, Message: "the idempotency key was used for another request"}
}

func versionMismatch(job *fsm.Job, p *fsm.Precondition) error {
	return conflict("job %d has version %d, and the request expects version %d: read the job again", job.ID, job.Version, p.IfVersion)
}

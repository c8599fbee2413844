package session

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Bounds of one message to a worker.
const (
	maxAssignments = 4096
	maxBytes       = 1 << 20 // bodies and job contexts; the last row may exceed it
	rowOverhead    = 12      // bytes of a row's numbers
)

// assignments builds a message with as many of the given attempts as fit. It
// returns the number of items taken, their approximate size, and those whose
// job no longer exists.
func assignments(st *fsm.State, items []fsm.AssignItem) (m *dtaskv1.Assignments, taken, size int, gone []fsm.AttemptRef) {
	limit := min(len(items), maxAssignments)
	m = columns.NewAssignments(limit)
	b := contextBuilder{st: st, m: m, indexes: make(map[fsm.JobID]uint32)}
	for taken < limit && b.size < maxBytes {
		it := items[taken]
		taken++
		t, ok := st.Task(it.TaskRef)
		if !ok {
			gone = append(gone, it.AttemptRef)
			continue
		}
		a := columns.Assignment{Task: it.Index, Attempt: it.Attempt, Failures: t.Failures, Extras: b.extras(it.TaskRef, &t)}
		a.Context, a.Policy = b.find(it.Job, policyKey{t.Policy, t.Alternative})
		a.ID, a.Body = st.NameAndBody(it.TaskRef)
		columns.AddAssignment(m, &a)
		b.size += len(a.Body) + len(a.ID) + rowOverhead
	}
	return m, taken, b.size, gone
}

// extras returns what only some assignments have; nil if this one has nothing
// of it.
func (c *contextBuilder) extras(ref fsm.TaskRef, t *fsm.Task) *dtaskv1.AssignmentExtras {
	of, isArray := c.st.ArrayTask(ref)
	saved := checkpoint(c.st, ref)
	if !isArray && saved == nil && !t.Cleanup {
		return nil
	}
	p := &dtaskv1.AssignmentExtras{Checkpoint: saved}
	if isArray {
		p.Array = arrayItems(of)
	}
	if t.Cleanup {
		p.JobOutcome = c.outcome(ref.Job)
	}
	c.size += proto.Size(p)
	return p
}

// arrayItems returns the items of an array that an attempt executes. They share
// the state's memory: the message is sent and not kept.
func arrayItems(t fsm.ArrayTask) *dtaskv1.ArrayItems {
	m := &dtaskv1.ArrayItems{Size: t.Items, Chunked: t.Chunk > 1, JsonPayload: t.JSON}
	t.Each(func(index uint32, item []byte) {
		m.Indexes = append(m.Indexes, index)
		if item != nil {
			m.Items = append(m.Items, item)
		}
	})
	return m
}

// checkpoint returns the checkpoint that a task's next attempt starts with, or
// nil. It shares the state's memory, as arrayItems does.
func checkpoint(st *fsm.State, t fsm.TaskRef) *dtaskv1.Checkpoint {
	c, ok := st.Checkpoint(t)
	if !ok {
		return nil
	}
	return &dtaskv1.Checkpoint{
		Attempt: attemptRef(fsm.AttemptRef{TaskRef: t, Attempt: c.Attempt}), Number: c.Number, Format: dtaskv1.CheckpointFormat(c.Format),
		Data: c.Data, File: c.File, Size: c.Size, Sha256: c.SHA256,
	}
}

// contextBuilder collects the contexts of one message, each once.
type contextBuilder struct {
	st      *fsm.State
	m       *dtaskv1.Assignments
	jobs    []jobContext // in the order of the message's contexts
	indexes map[fsm.JobID]uint32
	size    int // approximate size of the message

	// The last header and policy: jobs that were submitted together mostly
	// share them.
	header     *dtaskv1.JobHeader
	headerSize int // of the part that is in a context
	policy     *dtaskv1.TaskPolicy
	policySize int
}

// A jobContext describes a context of the message.
type jobContext struct {
	id       fsm.JobID
	policies []policyKey // of the context's policies, in order
}

// A policyKey is the number of a policy of a job, and that of the alternative which an
// attempt takes of its resources.
type policyKey struct {
	number      uint32
	alternative uint8
}

// find returns the index of a job's context, and that of one of its policies
// there.
func (c *contextBuilder) find(id fsm.JobID, policy policyKey) (at, index uint32) {
	at = c.context(id)
	j := &c.jobs[at]
	if i := slices.Index(j.policies, policy); i >= 0 {
		return at, uint32(i) //nolint:gosec // ≤ policies of the job
	}
	job, _ := c.st.Job(id)
	p := taking(job.Policy(policy.number), policy.alternative)
	if p != c.policy {
		c.policy, c.policySize = p, proto.Size(p)
	}
	c.size += c.policySize
	to := c.m.GetContexts()[at]
	to.Policies = append(to.Policies, p)
	j.policies = append(j.policies, policy)
	return at, uint32(len(j.policies) - 1) //nolint:gosec // ≤ policies of the job
}

// taking returns a policy as an attempt executes it: with the resources that it takes, and
// without alternatives. The policy in the state stays as it is.
func taking(p *dtaskv1.TaskPolicy, alternative uint8) *dtaskv1.TaskPolicy {
	others := p.GetAlternatives()
	if len(others) == 0 {
		return p
	}
	taken, _ := proto.Clone(p).(*dtaskv1.TaskPolicy)
	if taken.Alternatives = nil; alternative > 0 && int(alternative) <= len(others) {
		taken.Resources = others[alternative-1].GetResources()
	}
	return taken
}

// context returns the index of a job's context. Tasks of one job are mostly
// adjacent.
func (c *contextBuilder) context(id fsm.JobID) uint32 {
	n := len(c.jobs)
	if n > 0 && c.jobs[n-1].id == id {
		return uint32(n - 1) //nolint:gosec // ≤ maxAssignments
	}
	if at, known := c.indexes[id]; known {
		return at
	}
	job, _ := c.st.Job(id)
	h := job.Header
	context := &dtaskv1.JobContext{Job: uint64(id), JobName: h.GetName(), Env: h.GetEnv(), Priority: h.GetPriority(), Owner: h.GetOwner(), Namespace: h.GetNamespace(), Run: sequencer.DatedRun(h.GetRun())}
	if job.Header != c.header {
		c.header, c.headerSize = job.Header, proto.Size(context)
	}
	c.size += c.headerSize
	c.m.Contexts = append(c.m.Contexts, context)
	c.jobs = append(c.jobs, jobContext{id: id})
	at := uint32(n) //nolint:gosec // ≤ maxAssignments
	c.indexes[id] = at
	return at
}

// outcome returns the outcome of a job's ordinary tasks, for its cleanup tasks.
func (c *contextBuilder) outcome(id fsm.JobID) dtaskv1.JobState {
	job, _ := c.st.Job(id)
	switch job.Outcome {
	case fsm.JobCompleted:
		return dtaskv1.JobState_JOB_STATE_COMPLETED
	case fsm.JobFailed:
		return dtaskv1.JobState_JOB_STATE_FAILED
	case fsm.JobCancelled:
		return dtaskv1.JobState_JOB_STATE_CANCELLED
	case fsm.JobUploading, fsm.JobPending, fsm.JobRunning:
	}
	return dtaskv1.JobState_JOB_STATE_UNSPECIFIED // unreachable: cleanup tasks are not assigned earlier
}

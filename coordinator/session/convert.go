package session

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func attemptRef(a fsm.AttemptRef) *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}
}

func labels(m map[string]string) []fsm.Label {
	var list []fsm.Label
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fsm.Label{Key: k, Value: m[k]})
	}
	return list
}

func resources(m map[string]int64) []fsm.Resource {
	var list []fsm.Resource
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fsm.Resource{Name: k, Amount: m[k]})
	}
	return list
}

// Bounds of one message to a worker.
const (
	maxAssignments = 4096
	maxBytes       = 1 << 20 // of bodies and of what they share; the last taken may go above
	rowOverhead    = 12      // numbers of an assignment
)

// assignments reads what the given attempts shall run. It takes as many as fit
// into one message and gives the number taken, their bytes, about, and those whose job
// is gone.
func assignments(st *fsm.State, items []fsm.AssignItem) (m *dtaskv1.Assignments, taken, size int, gone []fsm.AttemptRef) {
	most := min(len(items), maxAssignments)
	m = columns.NewAssignments(most)
	b := contextBuilder{st: st, m: m, indexes: make(map[fsm.JobID]uint32)}
	for taken < most && b.size < maxBytes {
		it := items[taken]
		taken++
		t, ok := st.Task(it.TaskRef)
		if !ok {
			gone = append(gone, it.AttemptRef)
			continue
		}
		a := columns.Assignment{Task: it.Index, Attempt: it.Attempt, Failures: t.Failures, Extras: b.extras(it.TaskRef, &t)}
		a.Context, a.Policy = b.find(it.Job, t.Policy)
		a.ID, a.Body = st.NameAndBody(it.TaskRef)
		columns.AddAssignment(m, &a)
		b.size += len(a.Body) + len(a.ID) + rowOverhead
	}
	return m, taken, b.size, gone
}

// particular is what few tasks have; nil if this one has nothing of it.
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

// arrayItems is what of an array an attempt executes. The items are the state's own:
// what is sent is read here and not kept.
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

// checkpoint is what a task's next attempt begins with; nil if there is nothing.
// The data are the state's own: what is sent is read here and not kept.
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

// contexts collects what the assignments of one message point into, each once.
type contextBuilder struct {
	st      *fsm.State
	m       *dtaskv1.Assignments
	jobs    []jobContext // as the contexts of the message
	indexes map[fsm.JobID]uint32
	size    int // bytes of the message, about

	// Jobs that were submitted together mostly share header and policies: the last ones.
	header     *dtaskv1.JobHeader
	headerSize int // of what a context has of it
	policy     *dtaskv1.TaskPolicy
	policySize int
}

// A jobContext is what is known of a context of the message.
type jobContext struct {
	id       fsm.JobID
	policies []uint32 // numbers of those that it has, in its order
}

// find gives the places of a job and of one of its policies.
func (c *contextBuilder) find(id fsm.JobID, policy uint32) (at, index uint32) {
	at = c.context(id)
	j := &c.jobs[at]
	if i := slices.Index(j.policies, policy); i >= 0 {
		return at, uint32(i) //nolint:gosec // ≤ policies of the job
	}
	job, _ := c.st.Job(id)
	p := job.Policy(policy)
	if p != c.policy {
		c.policy, c.policySize = p, proto.Size(p)
	}
	c.size += c.policySize
	to := c.m.GetContexts()[at]
	to.Policies = append(to.Policies, p)
	j.policies = append(j.policies, policy)
	return at, uint32(len(j.policies) - 1) //nolint:gosec // ≤ policies of the job
}

// context gives the place of a job. Tasks of one mostly come one after the other.
func (c *contextBuilder) context(id fsm.JobID) uint32 {
	n := len(c.jobs)
	if n > 0 && c.jobs[n-1].id == id {
		return uint32(n - 1) //nolint:gosec // ≤ maxAssignments
	}
	if at, known := c.indexes[id]; known {
		return at
	}
	job, _ := c.st.Job(id)
	context := &dtaskv1.JobContext{Job: uint64(id), JobName: job.Header.GetName(), Env: job.Header.GetEnv()}
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

// outcome is what the ordinary tasks made of a job, for its clean-up tasks.
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
	return dtaskv1.JobState_JOB_STATE_UNSPECIFIED // does not happen: it is not assigned before
}

func stops(list []sequencer.StopOrder) []*dtaskv1.Stop {
	var out []*dtaskv1.Stop
	for _, s := range list {
		out = append(out, &dtaskv1.Stop{Attempt: attemptRef(s.Attempt), Reason: s.Reason})
	}
	return out
}

func attemptRefs(list []fsm.AttemptRef) []*dtaskv1.AttemptRef {
	var out []*dtaskv1.AttemptRef
	for _, a := range list {
		out = append(out, attemptRef(a))
	}
	return out
}

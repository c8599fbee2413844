package session

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func attemptTo(a fsm.AttemptRef) *dtaskv1.AttemptRef {
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
	overhead       = 32      // numbers of an assignment
)

// assignments reads what the given attempts shall run. It takes as many as fit
// into one message and gives the number taken, and those whose job is gone.
func assignments(st *fsm.State, items []fsm.AssignItem) (m *dtaskv1.Assignments, taken int, gone []fsm.AttemptRef) {
	m = &dtaskv1.Assignments{}
	b := contexts{st: st, m: m, jobs: make(map[fsm.JobID]*jobContext)}
	for taken < min(len(items), maxAssignments) && b.size < maxBytes {
		it := items[taken]
		taken++
		t, ok := st.Task(it.TaskRef)
		body := new(dtaskv1.TaskBody)
		raw := st.Body(it.TaskRef)
		if !ok || proto.Unmarshal(raw, body) != nil {
			gone = append(gone, it.AttemptRef)
			continue
		}
		c, p := b.find(it.Job, t.Policy)
		name := st.Name(it.TaskRef)
		b.size += len(raw) + len(name) + overhead
		m.Tasks = append(m.Tasks, &dtaskv1.Assignment{
			Context: c, Policy: p, Task: it.Index, Attempt: it.Attempt, TaskId: name, Body: body,
			FencingToken: st.Epoch()<<32 | uint64(it.Attempt), Failures: t.Failures,
		})
	}
	return m, taken, gone
}

// contexts collects what the assignments of one message point into, each once.
type contexts struct {
	st   *fsm.State
	m    *dtaskv1.Assignments
	jobs map[fsm.JobID]*jobContext
	size int // bytes of the message, about
}

type jobContext struct {
	index    uint32
	header   *dtaskv1.JobHeader
	policies map[uint32]uint32 // index in the header → index in the message
}

func (c *contexts) find(id fsm.JobID, policy uint32) (at, index uint32) {
	j := c.jobs[id]
	if j == nil {
		job, _ := c.st.Job(id)
		j = &jobContext{index: uint32(len(c.m.GetContexts())), header: job.Header, policies: make(map[uint32]uint32)} //nolint:gosec // ≤ maxAssignments
		c.jobs[id] = j
		context := &dtaskv1.JobContext{Job: uint64(id), JobName: job.Header.GetName(), Env: job.Header.GetEnv()}
		c.size += proto.Size(context)
		c.m.Contexts = append(c.m.Contexts, context)
	}
	index, ok := j.policies[policy]
	if !ok {
		to := c.m.GetContexts()[j.index]
		index = uint32(len(to.GetPolicies())) //nolint:gosec // ≤ policies of the header
		j.policies[policy] = index
		p := j.header.GetPolicies()[policy]
		c.size += proto.Size(p)
		to.Policies = append(to.Policies, p)
	}
	return j.index, index
}

func stopsTo(list []sequencer.StopOrder) []*dtaskv1.Stop {
	var out []*dtaskv1.Stop
	for _, s := range list {
		out = append(out, &dtaskv1.Stop{Attempt: attemptTo(s.Attempt), Reason: s.Reason})
	}
	return out
}

func attemptsTo(list []fsm.AttemptRef) []*dtaskv1.AttemptRef {
	var out []*dtaskv1.AttemptRef
	for _, a := range list {
		out = append(out, attemptTo(a))
	}
	return out
}

package spec

import (
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SingleTask describes a job of one task.
type SingleTask struct {
	Type     string // built-in or registered handler
	Payload  []byte
	Priority string // low, normal, high or urgent, or 0 to 3; empty = normal
	Name     string // of the job; empty = the type
	ID       string // of the task; empty = the type
	// Options are those of a job file.
	Options Options
}

// Single returns the job of one task. The error is [Faults], whose locations
// are those of a command line.
func Single(t SingleTask) (*dtaskv1.JobSpec, error) {
	var c collector
	refuse := func(where string, p problem) {
		if p.bad() {
			c.add(0, 0, where, p.what, p.do)
		}
	}
	level := dtaskv1.Priority_PRIORITY_NORMAL
	if t.Priority != "" {
		var p problem
		level, p = priority(t.Priority)
		refuse("priority", p)
	}
	name, id := t.Name, t.ID
	if name == "" {
		name = t.Type
	}
	if id == "" {
		id = t.Type
	}
	refuse("type", nameProblem(t.Type))
	if t.Name != "" {
		refuse("name", nameProblem(t.Name))
	}
	if t.ID != "" {
		refuse("id", idProblem(t.ID))
	}
	if t.Options.Owner != "" {
		refuse("owner", ownerProblem(t.Options.Owner))
	}
	refuse("payload", payloadProblem(len(t.Payload), t.Options.maxPayload()))
	if err := c.err(); err != nil {
		return nil, err
	}
	p := builtIn()
	p.kind = t.Type
	return &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{
			Name: name, Owner: t.Options.Owner, Priority: level, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
			Policies: []*dtaskv1.TaskPolicy{p.proto(t.Options.Defaults, !t.Options.Unfilled)},
		},
		Tasks: []*dtaskv1.TaskSpec{{Id: id, Body: &dtaskv1.TaskBody{Payload: t.Payload}}},
	}, nil
}

package api

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// addColumns is add for tasks in columns. What is not plain, or has a fault, becomes the
// message that it could have been and goes the way of those: the rules and their words are
// the same.
func (u *upload) addColumns(m *dtaskv1.TaskColumns) error {
	r, err := columns.ReadTasks(m, u.encoder.tasks)
	if err != nil {
		return invalid("%v", err)
	}
	u.checker.Expect(r.Left())
	u.encoder.expect(m)
	for r.Left() > 0 {
		t := r.Next()
		if payload, plain := taskbody.PayloadOnly(t.Body); plain && u.checker.AddPlain(spec.PlainTask{
			ID: t.ID, Policy: t.Policy, Dependencies: t.Dependencies, Payload: len(payload), Body: len(t.Body),
		}) {
			u.encoder.addRow(t)
			continue
		}
		listed, err := taskOf(t)
		if err != nil {
			return err
		}
		if u.checker.Add([]*dtaskv1.TaskSpec{listed}) != nil {
			return u.faultsOf(r)
		}
		if err := u.encoder.add(listed); err != nil {
			return err
		}
	}
	if faults := u.checker.Add(nil); faults != nil {
		return faults
	}
	return nil
}

// faultsOf is the answer to columns of which a row has a fault: all that are found in the
// message, as of tasks in messages of their own.
func (u *upload) faultsOf(r columns.TaskReader) error {
	const some = 1000 // at a time: a message of a megabyte may have half a million
	var rest []*dtaskv1.TaskSpec
	for r.Left() > 0 {
		t, err := taskOf(r.Next())
		if err != nil {
			break // the others are told before
		}
		if rest = append(rest, t); len(rest) == some {
			_ = u.checker.Add(rest) // they are told below
			rest = rest[:0]
		}
	}
	return u.checker.Add(rest)
}

// taskOf is a row as a message.
func taskOf(t columns.Task) (*dtaskv1.TaskSpec, error) {
	listed := &dtaskv1.TaskSpec{Id: t.ID, Policy: t.Policy, Dependencies: slices.Clone(t.Dependencies), Body: &dtaskv1.TaskBody{}}
	if err := proto.Unmarshal(t.Body, listed.GetBody()); err != nil {
		return nil, invalid("columns: the body of task %s is malformed: %v", quote(t.ID), err)
	}
	return listed, nil
}

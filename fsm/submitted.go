package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Submitted returns a job as it was submitted: without what updates changed later. It
// returns an error if the job is unknown.
func (s *State) Submitted(id JobID) (*dtaskv1.JobSpec, error) {
	j := s.sealedJob(id)
	if j == nil {
		return nil, fmt.Errorf("job %d not found", id)
	}
	return j.asSubmitted()
}

// Submitted returns the job as it was submitted.
func (a *ArchivedJob) Submitted() (*dtaskv1.JobSpec, error) { return a.job.asSubmitted() }

func (j *job) asSubmitted() (*dtaskv1.JobSpec, error) {
	header := new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(j.headerBytes, header); err != nil {
		return nil, fmt.Errorf("decoding header: %w", err)
	}
	spec := &dtaskv1.JobSpec{Header: header}
	for _, c := range j.chunks {
		var err error
		switch {
		case !c.ofArray:
			err = c.submitted(spec)
		case c.part == 0:
			err = c.submittedArray(spec)
		default: // more items of the last array
			c.submittedItems(spec.GetTasks()[len(spec.GetTasks())-1].GetArray())
		}
		if err != nil {
			return nil, err
		}
	}
	return spec, nil
}

// submitted appends the listed tasks of a chunk.
func (c *Chunk) submitted(spec *dtaskv1.JobSpec) error {
	for i := range c.off {
		t := c.at(uint32(i)) //nolint:gosec // ≤ 1,000,000
		task := &dtaskv1.TaskSpec{Id: string(t.name), Policy: t.policy, Body: new(dtaskv1.TaskBody)}
		t.eachDep(func(dep uint32, _ Condition) { task.Dependencies = append(task.Dependencies, dep) })
		task.Conditions = ProtoConditions(t.conditions())
		if err := proto.Unmarshal(t.body, task.GetBody()); err != nil {
			return fmt.Errorf("decoding task %s: %w", t.name, err)
		}
		spec.Tasks = append(spec.Tasks, task)
	}
	return nil
}

// submittedArray appends the array that starts with a chunk.
func (c *Chunk) submittedArray(spec *dtaskv1.JobSpec) error {
	a := c.array
	task := &dtaskv1.TaskSpec{
		Id: a.Name, Policy: a.Policy, Dependencies: a.Deps, Conditions: ProtoConditions(significant(a.Conditions)), Body: new(dtaskv1.TaskBody),
		Array: &dtaskv1.ArraySpec{MaxParallel: a.MaxParallel, JsonPayload: a.JSON},
	}
	if a.Chunk > 1 {
		task.Array.Chunk = a.Chunk
	}
	if err := proto.Unmarshal(a.Body, task.GetBody()); err != nil {
		return fmt.Errorf("decoding array %s: %w", a.Name, err)
	}
	for _, r := range a.Ranges {
		task.Array.Ranges = append(task.Array.Ranges, &dtaskv1.ArrayRange{
			First: r.First, Last: uint32(r.last()), Step: r.Step, //nolint:gosec // checked by Array.check
		})
	}
	if len(a.Ranges) == 0 {
		task.Array.ItemsTotal = a.Items
	}
	c.submittedItems(task.GetArray())
	spec.Tasks = append(spec.Tasks, task)
	return nil
}

func (c *Chunk) submittedItems(array *dtaskv1.ArraySpec) {
	for i := range c.off {
		array.Items = append(array.Items, c.item(uint32(i))) //nolint:gosec // ≤ 1,000,000
	}
}

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

// SubmittedTask is a listed task as it was submitted.
type SubmittedTask struct {
	Index        uint32
	Name         []byte // shared: never change it
	Policy       uint32 // index into JobHeader.policies
	Dependencies []uint32
	Conditions   []Condition // of the dependencies; nil if all are WhenCompleted
	Body         []byte      // encoded dtask.v1.TaskBody; shared: never change it
}

// EachSubmitted passes a job to the given functions in the parts in which it was
// submitted, in order: listed tasks to task, whose dependencies are only valid during the
// call, and arrays to array. Items that an array does not have follow in further parts of
// it, as in dtask.v1.ArraySpec. It ends with the first error, which may be that the job is unknown.
func (s *State) EachSubmitted(id JobID, task func(*SubmittedTask) error, array func(*dtaskv1.TaskSpec) error) error {
	j := s.sealedJob(id)
	if j == nil {
		return fmt.Errorf("job %d not found", id)
	}
	var row SubmittedTask
	name := "" // of the array that further items belong to
	for _, c := range j.chunks {
		if c.ofArray {
			part, err := c.submittedPart(name)
			if err == nil {
				name = part.GetId()
				err = array(part)
			}
			if err != nil {
				return err
			}
			continue
		}
		for i := range c.off {
			c.submittedTask(uint32(i), &row) //nolint:gosec // ≤ 1,000,000
			if err := task(&row); err != nil {
				return err
			}
		}
	}
	return nil
}

// submittedTask reads listed task i of a chunk. It uses the memory of the dependencies of
// the task before it.
func (c *Chunk) submittedTask(i uint32, into *SubmittedTask) {
	t := c.at(i)
	into.Index, into.Name, into.Policy, into.Body, into.Dependencies = t.self, t.name, t.policy, t.body, into.Dependencies[:0]
	into.Conditions = t.conditions()
	t.eachDep(func(dep uint32, _ Condition) { into.Dependencies = append(into.Dependencies, dep) })
}

// submittedPart returns the array that starts with a chunk, with its first items, or the
// next items of an array with a name.
func (c *Chunk) submittedPart(name string) (*dtaskv1.TaskSpec, error) {
	if c.part == 0 {
		one := new(dtaskv1.JobSpec)
		if err := c.submittedArray(one); err != nil {
			return nil, err
		}
		return one.GetTasks()[0], nil
	}
	part := &dtaskv1.TaskSpec{Id: name, Array: &dtaskv1.ArraySpec{Part: c.part}}
	c.submittedItems(part.GetArray())
	return part, nil
}

// submitted appends the listed tasks of a chunk.
func (c *Chunk) submitted(spec *dtaskv1.JobSpec) error {
	for i := range c.off {
		var t SubmittedTask
		c.submittedTask(uint32(i), &t) //nolint:gosec // ≤ 1,000,000
		task := &dtaskv1.TaskSpec{Id: string(t.Name), Policy: t.Policy, Dependencies: t.Dependencies, Conditions: ProtoConditions(t.Conditions), Body: new(dtaskv1.TaskBody)}
		if err := proto.Unmarshal(t.Body, task.GetBody()); err != nil {
			return fmt.Errorf("decoding task %s: %w", t.Name, err)
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

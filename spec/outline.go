package spec

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// An Outline summarizes the tasks of a job in their order, without what they run: see
// [dtaskv1.PlanTask]. Equal jobs have equal outlines, however they are split into parts.
type Outline struct {
	// Tasks has an entry for each task and each array.
	Tasks []*dtaskv1.PlanTask

	starts []uint32 // index of the first task of each entry
	next   uint32
}

// OutlineOf returns the outline of a checked job.
func OutlineOf(job *dtaskv1.JobSpec) (*Outline, error) {
	o := new(Outline)
	for _, t := range job.GetTasks() {
		if err := o.Add(t); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Add adds a task, an array, or further items of the array before.
func (o *Outline) Add(t *dtaskv1.TaskSpec) error {
	a := t.GetArray()
	if a.GetPart() > 0 {
		if last := len(o.Tasks) - 1; last >= 0 {
			o.Tasks[last].Digest = digestItems(o.Tasks[last].GetDigest(), a.GetItems())
		}
		return nil
	}
	body, err := taskbody.Append(nil, t.GetBody())
	if err != nil {
		return err //nolint:wrapcheck // it names the body
	}
	row := o.AddTask(t.GetId(), t.GetPolicy(), t.GetDependencies(), t.GetConditions(), body)
	if a == nil {
		return nil
	}
	n := min(array.Tasks(t), MaxTasks)
	row.Tasks, row.MaxParallel = uint32(n), a.GetMaxParallel() //nolint:gosec // bounded
	o.next += row.GetTasks() - 1
	row.Digest = digestArray(row.GetDigest(), a)
	return nil
}

// AddTask adds a task without an array, with its encoded body, and returns its entry.
func (o *Outline) AddTask(id string, policy uint32, dependencies []uint32, conditions []dtaskv1.Condition, body []byte) *dtaskv1.PlanTask {
	row := &dtaskv1.PlanTask{Id: id, Policy: policy, Conditions: slices.Clone(conditions), Digest: digest(0, body)}
	for _, d := range dependencies {
		if k, found := slices.BinarySearch(o.starts, d); found {
			row.Dependencies = append(row.Dependencies, uint32(k)) //nolint:gosec // at most MaxTasks
		}
	}
	o.Tasks, o.starts = append(o.Tasks, row), append(o.starts, o.next)
	o.next++
	return row
}

// digest continues a digest, which finds changes and does not protect against them.
func digest(before uint64, data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, before))
	_, _ = h.Write(data)
	return h.Sum64()
}

func digestArray(before uint64, a *dtaskv1.ArraySpec) uint64 {
	var b []byte
	for _, r := range a.GetRanges() {
		b = append(append(b, array.Format(r)...), ',')
	}
	b = binary.BigEndian.AppendUint64(b, array.Chunk(a))
	return digestItems(digest(before, b), a.GetItems())
}

func digestItems(before uint64, items [][]byte) uint64 {
	for _, it := range items {
		before = digest(before, it)
	}
	return before
}

// TasksOf returns how many tasks an entry of an outline has.
func TasksOf(t *dtaskv1.PlanTask) uint64 { return uint64(max(t.GetTasks(), 1)) }

// CheckOutline checks the header of a job, whose defaults are filled in, and the outline of
// its tasks; nil means that it can be planned.
func CheckOutline(h *dtaskv1.JobHeader, tasks []*dtaskv1.PlanTask) Faults {
	c := NewChecker(h, CheckOptions{})
	c.begin()
	if len(tasks) == 0 {
		c.refuse("job.tasks", problem{"is empty", "list at least one task"})
	}
	total, dependencies := uint64(0), 0
	for i, t := range tasks {
		if c.total > maxFaults {
			break
		}
		at := taskPlace{c: c, id: t.GetId(), index: i}
		at.refuse("id", idProblem(t.GetId()))
		at.dependencies(t.GetDependencies())
		at.conditions(t.GetConditions(), len(t.GetDependencies()))
		if int64(t.GetPolicy()) >= int64(len(h.GetPolicies())) {
			at.refuse("policy", problem{fmt.Sprintf("unknown policy %d", t.GetPolicy()), fmt.Sprintf("send an index below %d", len(h.GetPolicies()))})
		}
		if t.GetMaxParallel() > MaxTasks {
			at.refuse("array", problem{"has a max_parallel above 1,000,000", "send at most 1,000,000"})
		}
		total, dependencies = min(total+TasksOf(t), 2*MaxTasks), dependencies+len(t.GetDependencies())
	}
	c.atMost("job.tasks", int(total), MaxTasks, "tasks") //nolint:gosec // bounded
	c.atMost("job.tasks", dependencies, MaxDependencies, "dependencies")
	return c.faults()
}

package client

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// framingBytes are the tag and the length of a task in its message.
	framingBytes = 8
	// partFraming are the tags and lengths of a part in its message, its number
	// and its flag.
	partFraming = 20
	// numberBytes is the size of a number in a column: valid ones are at most a
	// million.
	numberBytes = 3
	// taskNumbers is how many numbers a task has in columns, beside one for each
	// dependency.
	taskNumbers = 4
)

// jobParts makes the parts of a job, each when it is asked for.
type jobParts struct {
	head     *dtaskv1.JobPart // the next part, without tasks
	tasks    []*dtaskv1.TaskSpec
	index    uint32               // of the next task
	previous *dtaskv1.TaskColumns // of the previous part
	body     []byte

	spec *JobSpec // a job that has parts already; excludes tasks
	sent int      // parts of spec
}

func newJobParts(job *dtaskv1.JobSpec, head *dtaskv1.JobPart) jobParts {
	return jobParts{head: head, tasks: splitArrays(job.GetTasks())}
}

// next returns the next part and its approximate size. Arrays are sent as they
// are, all other tasks in columns; a part has one of the two. A task with too
// few or too many conditions has no form in columns: the coordinator rejects it.
func (p *jobParts) next() (part *dtaskv1.JobPart, size int, err error) {
	part, p.head = p.head, &dtaskv1.JobPart{}
	if p.spec != nil {
		p.sent++
		part, size = p.spec.next(part, p.sent-1)
		return part, size, nil
	}
	size = partFraming + proto.Size(part)
	n := 0
	for _, t := range p.tasks {
		inColumns := t.GetArray() == nil && (len(t.GetConditions()) == 0 || len(t.GetConditions()) == len(t.GetDependencies()))
		var taskSize int
		if inColumns {
			if p.body, err = taskbody.Append(p.body[:0], t.GetBody()); err != nil {
				return nil, 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s: task %q: %v", submitting, t.GetId(), err)}
			}
			taskSize = len(t.GetId()) + len(p.body) + (taskNumbers+len(t.GetDependencies()))*numberBytes
		} else {
			taskSize = proto.Size(t) + framingBytes
		}
		if taskSize > maxSendBytes-partFraming {
			return nil, 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s: task %q has %d bytes", submitting, t.GetId(), taskSize)}
		}
		switched := n > 0 && inColumns != (part.GetColumns() != nil)
		if switched || size+taskSize > messageBytes && (n > 0 || size > messageBytes) {
			break
		}
		size += taskSize
		n++
		if inColumns {
			p.addRow(part, t, taskSize)
		} else {
			part.Tasks = append(part.Tasks, t)
		}
		p.index += uint32(array.Tasks(t)) //nolint:gosec // at most maxTasks in all
	}
	p.tasks, p.previous = p.tasks[n:], part.GetColumns()
	part.More = len(p.tasks) > 0
	return part, size, nil
}

// addRow appends a task, whose encoded body is p.body, to the columns of a
// part.
func (p *jobParts) addRow(part *dtaskv1.JobPart, t *dtaskv1.TaskSpec, size int) {
	if part.GetColumns() == nil {
		part.Columns = columns.NewTasks(p.previous)
		if p.previous == nil && len(p.tasks)*size <= messageBytes { // all tasks of a small job fit, if they resemble the first
			part.Columns = columns.ExpectTasks(len(p.tasks), len(t.GetId())+1, len(p.body))
		}
	}
	columns.AddTask(part.GetColumns(), p.index, &columns.Task{ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Conditions: t.GetConditions(), Body: p.body})
}

// splitArrays splits arrays whose items don't fit into a message.
func splitArrays(tasks []*dtaskv1.TaskSpec) []*dtaskv1.TaskSpec {
	if !slices.ContainsFunc(tasks, func(t *dtaskv1.TaskSpec) bool { return len(t.GetArray().GetItems()) > 0 }) {
		return tasks
	}
	out := make([]*dtaskv1.TaskSpec, 0, len(tasks))
	for _, t := range tasks {
		items := t.GetArray().GetItems()
		chunk := int(array.Chunk(t.GetArray())) //nolint:gosec // 32 bits
		n := itemsOfPart(items, chunk)
		if n == len(items) {
			out = append(out, t)
			continue
		}
		out = append(out, withItems(t, items[:n]))
		items = items[n:]
		for part := uint32(1); len(items) > 0; part++ {
			n = itemsOfPart(items, chunk)
			out = append(out, &dtaskv1.TaskSpec{Id: t.GetId(), Array: &dtaskv1.ArraySpec{Items: items[:n], Part: part}})
			items = items[n:]
		}
	}
	return out
}

// withItems returns a copy of an array that has only its first items, and
// announces the others.
func withItems(t *dtaskv1.TaskSpec, items [][]byte) *dtaskv1.TaskSpec {
	out, spec := new(dtaskv1.TaskSpec), new(dtaskv1.ArraySpec)
	copyFields(out, t)
	copyFields(spec, t.GetArray())
	spec.Items, spec.ItemsTotal = items, uint32(len(t.GetArray().GetItems())) //nolint:gosec // at most maxTasks
	out.Array = spec
	return out
}

// copyFields copies all fields of a message. The copies share what is behind
// them.
func copyFields(to, from proto.Message) {
	from.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.ProtoReflect().Set(f, v)
		return true
	})
}

// itemsOfPart returns how many items the next part has: a multiple of chunk,
// or all.
func itemsOfPart(items [][]byte, chunk int) int {
	const framing = 4
	n, size := 0, 0
	for n < len(items) && size < messageBytes/2 {
		for range min(chunk, len(items)-n) {
			size += len(items[n]) + framing
			n++
		}
	}
	return n
}

package client

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// framingBytes are the tag and the length of a task in its message.
	framingBytes = 8
	// numberBytes is a number of a column: none of a job that is taken is much
	// above a million.
	numberBytes = 3
	// taskNumbers are those of a task in columns, beside one for each dependency.
	taskNumbers = 4
)

// requests are the messages of a submission, each made when it is asked for. first is the
// head of the first one and has no tasks. Arrays go as they are, all others in columns.
// There is always at least one message.
func requests(first *dtaskv1.SubmitRequest, tasks []*dtaskv1.TaskSpec) iter.Seq2[*dtaskv1.SubmitRequest, error] {
	return func(yield func(*dtaskv1.SubmitRequest, error) bool) {
		p := newPacking(first, len(tasks))
		for _, t := range tasks {
			full, err := p.add(t)
			if err != nil {
				yield(nil, err)
				return
			}
			if full != nil && !yield(full, nil) {
				return
			}
		}
		yield(p.m, nil)
	}
}

// packing is a message in the making.
type packing struct {
	m     *dtaskv1.SubmitRequest
	size  int                  // about how long it is
	index uint32               // of the next task in its job
	tasks int                  // of the whole job, arrays counted once
	like  *dtaskv1.TaskColumns // of the message before
	body  []byte
}

// newPacking begins the first message of a job, which has so many tasks, arrays counted once.
func newPacking(first *dtaskv1.SubmitRequest, tasks int) *packing {
	return &packing{size: proto.Size(first), tasks: tasks, m: &dtaskv1.SubmitRequest{
		Header: first.GetHeader(), IdempotencyKey: first.GetIdempotencyKey(), GeneratedKey: first.GetGeneratedKey(), Total: first.GetTotal(),
	}}
}

// add adds the next task, and gives the message so far if the task did not fit into it.
func (p *packing) add(t *dtaskv1.TaskSpec) (full *dtaskv1.SubmitRequest, err error) {
	listed := t.GetArray() == nil
	var size int
	if listed {
		if p.body, err = taskbody.Append(p.body[:0], t.GetBody()); err != nil {
			return nil, &Error{Kind: ErrInvalid, Message: err.Error()}
		}
		size = len(t.GetId()) + len(p.body) + (taskNumbers+len(t.GetDependencies()))*numberBytes
	} else {
		size = proto.Size(t) + framingBytes
	}
	holds := len(p.m.GetTasks()) > 0 || p.m.GetColumns() != nil
	if other := holds && listed != (p.m.GetColumns() != nil); other || p.size+size > chunkBytes && (holds || p.size > chunkBytes) {
		full = p.m
		p.m, p.size, p.like = &dtaskv1.SubmitRequest{}, 0, full.GetColumns()
	}
	p.size += size
	if listed {
		if p.m.GetColumns() == nil {
			p.m.Columns = columns.NewTasks(p.like)
			if p.like == nil && p.tasks*size <= chunkBytes { // all of a small job fits, if its tasks are like the first
				p.m.Columns = columns.ExpectTasks(p.tasks, len(t.GetId())+1, len(p.body))
			}
		}
		columns.AddTask(p.m.GetColumns(), p.index, &columns.Task{ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Body: p.body})
	} else {
		p.m.Tasks = append(p.m.GetTasks(), t)
	}
	p.index += uint32(array.Tasks(t)) //nolint:gosec // at most a million, or the job is refused
	return full, nil
}

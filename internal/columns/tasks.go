package columns

import (
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Task is a row: a submitted task without an array.
type Task struct {
	ID           string
	Policy       uint32
	Dependencies []uint32            // indexes, as in TaskSpec; a reader reuses the slice for its next row
	Conditions   []dtaskv1.Condition // of the dependencies, as in TaskSpec; shared
	Body         []byte              // encoded TaskBody
}

// NewTasks returns an empty message with the capacity of another, which may be
// nil.
func NewTasks(like *dtaskv1.TaskColumns) *dtaskv1.TaskColumns {
	return &dtaskv1.TaskColumns{
		IdSizes: make([]uint32, 0, len(like.GetIdSizes())), Ids: make([]byte, 0, len(like.GetIds())),
		Distances: make([]uint32, 0, len(like.GetDistances())), Bodies: make([]byte, 0, len(like.GetBodies())),
	}
}

// ExpectTasks returns an empty message with capacity for n tasks whose IDs and
// bodies have the given lengths.
func ExpectTasks(n, id, body int) *dtaskv1.TaskColumns {
	return &dtaskv1.TaskColumns{IdSizes: make([]uint32, 0, n), Ids: make([]byte, 0, n*id), Bodies: make([]byte, 0, n*body)}
}

// AddTask appends the task with an index in its job.
func AddTask(m *dtaskv1.TaskColumns, index uint32, t *Task) {
	n, room := len(m.GetIdSizes()), cap(m.GetIdSizes())
	m.IdSizes = append(m.IdSizes, uint32(len(t.ID))) //nolint:gosec // shorter than 4 GiB
	m.Ids = append(m.Ids, t.ID...)
	m.Policies = appendSparse(m.GetPolicies(), n, t.Policy, room)
	m.DependencyCounts = appendSparse(m.GetDependencyCounts(), n, uint32(len(t.Dependencies)), room) //nolint:gosec // as above
	addConditions(m, t)
	for _, dep := range t.Dependencies {
		m.Distances = append(m.Distances, index-dep)
	}
	m.BodySizes = appendSparse(m.GetBodySizes(), n, uint32(len(t.Body)), room) //nolint:gosec // as above
	m.Bodies = append(m.Bodies, t.Body...)
}

// addConditions appends the conditions of a task's dependencies; none until a
// task has some.
func addConditions(m *dtaskv1.TaskColumns, t *Task) {
	if len(m.GetConditions()) == 0 && len(t.Conditions) == 0 {
		return
	}
	for len(m.GetConditions()) < len(m.GetDistances()) {
		m.Conditions = append(m.Conditions, dtaskv1.Condition_CONDITION_COMPLETED)
	}
	m.Conditions = append(m.Conditions, t.Conditions...)
	for len(m.GetConditions()) < len(m.GetDistances())+len(t.Dependencies) {
		m.Conditions = append(m.Conditions, dtaskv1.Condition_CONDITION_COMPLETED)
	}
}

// TaskReader reads the rows of a message in order.
type TaskReader struct {
	m        *dtaskv1.TaskColumns
	ids      string
	index    uint32 // in the job, of the next row
	next     int
	id, body int // offsets of the next row
	distance int
	deps     []uint32
}

// ReadTasks checks the columns of a message, which may be nil, and returns a
// reader. first is the index of its first task in the job. The values of rows
// are not checked: a distance that is too large becomes an index above the
// task's own. Errors wrap ErrMalformed.
func ReadTasks(m *dtaskv1.TaskColumns, first uint32) (TaskReader, error) {
	if err := checkTasks(m); err != nil {
		return TaskReader{}, err
	}
	return TaskReader{m: m, ids: string(m.GetIds()), index: first}, nil
}

func checkTasks(m *dtaskv1.TaskColumns) error {
	n := len(m.GetIdSizes())
	for _, column := range []struct {
		name string
		list []uint32
	}{{"policies", m.GetPolicies()}, {"dependency_counts", m.GetDependencyCounts()}, {"body_sizes", m.GetBodySizes()}} {
		if err := checkLength(column.name, column.list, n); err != nil {
			return err
		}
	}
	if err := checkSizes("ids", m.GetIdSizes(), len(m.GetIds())); err != nil {
		return err
	}
	if err := checkSizes("bodies", m.GetBodySizes(), len(m.GetBodies())); err != nil {
		return err
	}
	sum := uint64(0) // can't overflow: fewer than 2^32 numbers of 32 bits
	for _, count := range m.GetDependencyCounts() {
		sum += uint64(count)
	}
	if sum != uint64(len(m.GetDistances())) {
		return malformed("there are %d distances, and dependency_counts say %d", len(m.GetDistances()), sum)
	}
	if n := len(m.GetConditions()); n > 0 && n != len(m.GetDistances()) {
		return malformed("there are %d conditions beside %d distances", n, len(m.GetDistances()))
	}
	return nil
}

// Left returns the number of remaining rows.
func (r *TaskReader) Left() int { return len(r.m.GetIdSizes()) - r.next }

// Next returns the next row. Left must be above 0.
func (r *TaskReader) Next() Task {
	i := r.next
	r.next++
	id, body := r.id, r.body
	r.id += int(r.m.GetIdSizes()[i])
	r.body += int(sparseAt(r.m.GetBodySizes(), i))
	t := Task{ID: r.ids[id:r.id], Policy: sparseAt(r.m.GetPolicies(), i), Body: slices.Clip(r.m.GetBodies()[body:r.body])}
	if n := int(sparseAt(r.m.GetDependencyCounts(), i)); n > 0 {
		r.deps = r.deps[:0]
		for _, distance := range r.m.GetDistances()[r.distance : r.distance+n] {
			r.deps = append(r.deps, r.index-distance)
		}
		if list := r.m.GetConditions(); len(list) > 0 {
			t.Conditions = slices.Clip(list[r.distance : r.distance+n])
		}
		r.distance += n
		t.Dependencies = r.deps
	}
	r.index++
	return t
}

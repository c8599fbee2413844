package columns

import (
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Assignment is a row: an attempt for a worker to run.
type Assignment struct {
	Context, Policy uint32 // indexes into the message's contexts, and their policies
	Task, Attempt   uint32
	Failures        uint32
	ID              string
	Body            []byte
	Extras          *dtaskv1.AssignmentExtras // nil: none; AddAssignment sets its place
}

// NewAssignments returns an empty message with capacity for about n
// assignments.
func NewAssignments(n int) *dtaskv1.Assignments {
	return &dtaskv1.Assignments{Tasks: make([]uint32, 0, n), Attempts: make([]uint32, 0, n), IdSizes: make([]uint32, 0, n)}
}

// AddAssignment appends a row. The caller adds contexts.
func AddAssignment(m *dtaskv1.Assignments, a *Assignment) {
	n, room := len(m.GetTasks()), cap(m.GetTasks())
	m.Context = appendSparse(m.GetContext(), n, a.Context, room)
	m.Policy = appendSparse(m.GetPolicy(), n, a.Policy, room)
	m.Tasks = append(m.Tasks, a.Task)
	m.Attempts = append(m.Attempts, a.Attempt)
	m.Failures = appendSparse(m.GetFailures(), n, a.Failures, room)
	m.IdSizes = append(m.IdSizes, uint32(len(a.ID))) //nolint:gosec // shorter than 4 GiB
	m.Ids = appendBytes(m.GetIds(), a.ID, room)
	m.BodySizes = appendSparse(m.GetBodySizes(), n, uint32(len(a.Body)), room) //nolint:gosec // as above
	m.Bodies = appendBytes(m.GetBodies(), a.Body, room)
	if a.Extras != nil {
		a.Extras.Row = uint32(n) //nolint:gosec // fewer than 2^32 rows
		m.Extras = append(m.Extras, a.Extras)
	}
}

// AssignmentReader reads the rows of a message in order.
type AssignmentReader struct {
	m          *dtaskv1.Assignments
	ids        string
	next       int
	id, body   int // offsets of the next row
	particular int // index of the next one
}

// ReadAssignments checks a message, which may be nil, and returns a reader.
// Errors wrap ErrMalformed.
func ReadAssignments(m *dtaskv1.Assignments) (AssignmentReader, error) {
	if err := checkAssignments(m); err != nil {
		return AssignmentReader{}, err
	}
	return AssignmentReader{m: m, ids: string(m.GetIds())}, nil
}

func checkAssignments(m *dtaskv1.Assignments) error {
	n := len(m.GetTasks())
	if len(m.GetAttempts()) != n || len(m.GetIdSizes()) != n {
		return malformed("%d attempts and %d id_sizes beside %d tasks", len(m.GetAttempts()), len(m.GetIdSizes()), n)
	}
	for name, column := range map[string][]uint32{"context": m.GetContext(), "policy": m.GetPolicy(), "failures": m.GetFailures(), "body_sizes": m.GetBodySizes()} {
		if err := checkLength(name, column, n); err != nil {
			return err
		}
	}
	if err := checkSizes("ids", m.GetIdSizes(), len(m.GetIds())); err != nil {
		return err
	}
	if err := checkSizes("bodies", m.GetBodySizes(), len(m.GetBodies())); err != nil {
		return err
	}
	for i := range n {
		context, policy := sparseAt(m.GetContext(), i), sparseAt(m.GetPolicy(), i)
		if int64(context) >= int64(len(m.GetContexts())) || int64(policy) >= int64(len(m.GetContexts()[context].GetPolicies())) {
			return malformed("row %d refers to missing policy %d of job %d", i, policy, context)
		}
	}
	before := int64(-1)
	for _, p := range m.GetExtras() {
		if err := checkPlace("a particular", p.GetRow(), before, n); err != nil {
			return err
		}
		before = int64(p.GetRow())
	}
	return nil
}

// Left returns the number of remaining rows.
func (r *AssignmentReader) Left() int { return len(r.m.GetTasks()) - r.next }

// Next returns the next row. Left must be above 0.
func (r *AssignmentReader) Next() Assignment {
	i := r.next
	r.next++
	id, body := r.id, r.body
	r.id += int(r.m.GetIdSizes()[i])
	r.body += int(sparseAt(r.m.GetBodySizes(), i))
	a := Assignment{
		Context: sparseAt(r.m.GetContext(), i), Policy: sparseAt(r.m.GetPolicy(), i),
		Task: r.m.GetTasks()[i], Attempt: r.m.GetAttempts()[i], Failures: sparseAt(r.m.GetFailures(), i),
		ID: r.ids[id:r.id], Body: slices.Clip(r.m.GetBodies()[body:r.body]),
	}
	if r.particular < len(r.m.GetExtras()) && int(r.m.GetExtras()[r.particular].GetRow()) == i {
		a.Extras = r.m.GetExtras()[r.particular]
		r.particular++
	}
	return a
}

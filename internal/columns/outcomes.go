package columns

import (
	"math"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Outcome is a row: the outcome of an attempt.
type Outcome struct {
	Number        uint64 // of the report; only set by readers
	Job           uint64
	Task, Attempt uint32
	TookMS        uint32
	Result        []byte           // of a plain success
	Detail        *dtaskv1.Outcome // nil: plain success; AddOutcome sets its place
}

// NewOutcomes returns an empty message with capacity for about n outcomes,
// numbered from first.
func NewOutcomes(first uint64, n int) *dtaskv1.Outcomes {
	return &dtaskv1.Outcomes{First: first, Jobs: make([]uint64, 0, n), Tasks: make([]uint32, 0, n), Attempts: make([]uint32, 0, n)}
}

// AddOutcome appends a row.
func AddOutcome(m *dtaskv1.Outcomes, o *Outcome) {
	n, room := len(m.GetTasks()), cap(m.GetTasks())
	m.Jobs = append(m.Jobs, o.Job)
	m.Tasks = append(m.Tasks, o.Task)
	m.Attempts = append(m.Attempts, o.Attempt)
	m.TookMs = appendSparse(m.GetTookMs(), n, o.TookMS, room)
	if o.Detail != nil {
		o.Detail.Row = uint32(n) //nolint:gosec // fewer than 2^32 rows
		m.Details = append(m.Details, o.Detail)
		m.ResultSizes = appendSparse(m.GetResultSizes(), n, 0, room)
		return
	}
	m.ResultSizes = appendSparse(m.GetResultSizes(), n, uint32(len(o.Result)), room) //nolint:gosec // at most 4 KiB
	m.Results = appendBytes(m.GetResults(), o.Result, room)
}

// OutcomeReader reads the rows of a message in order.
type OutcomeReader struct {
	m      *dtaskv1.Outcomes
	next   int
	result int // offset of the next row
	other  int // index of the next one
}

// ReadOutcomes checks a message, which may be nil, and returns a reader.
// Errors wrap ErrMalformed.
func ReadOutcomes(m *dtaskv1.Outcomes) (OutcomeReader, error) {
	if err := checkOutcomes(m); err != nil {
		return OutcomeReader{}, err
	}
	return OutcomeReader{m: m}, nil
}

func checkOutcomes(m *dtaskv1.Outcomes) error {
	n := len(m.GetTasks())
	if len(m.GetJobs()) != n || len(m.GetAttempts()) != n {
		return malformed("%d jobs and %d attempts beside %d tasks", len(m.GetJobs()), len(m.GetAttempts()), n)
	}
	if n > 0 && (m.GetFirst() == 0 || m.GetFirst() > math.MaxUint64-uint64(n)) {
		return malformed("%d outcomes from number %d", n, m.GetFirst())
	}
	if err := checkLength("took_ms", m.GetTookMs(), n); err != nil {
		return err
	}
	if err := checkLength("result_sizes", m.GetResultSizes(), n); err != nil {
		return err
	}
	if err := checkSizes("results", m.GetResultSizes(), len(m.GetResults())); err != nil {
		return err
	}
	before := int64(-1)
	for _, o := range m.GetDetails() {
		if err := checkPlace("an outcome", o.GetRow(), before, n); err != nil {
			return err
		}
		before = int64(o.GetRow())
		if sparseAt(m.GetResultSizes(), int(before)) != 0 {
			return malformed("two results at place %d", before)
		}
	}
	return nil
}

// Left returns the number of remaining rows.
func (r *OutcomeReader) Left() int { return len(r.m.GetTasks()) - r.next }

// Next returns the next row. Left must be above 0.
func (r *OutcomeReader) Next() Outcome {
	i := r.next
	r.next++
	o := Outcome{
		Number: r.m.GetFirst() + uint64(i), Job: r.m.GetJobs()[i], Task: r.m.GetTasks()[i], Attempt: r.m.GetAttempts()[i], //nolint:gosec // not negative
		TookMS: sparseAt(r.m.GetTookMs(), i),
	}
	if r.other < len(r.m.GetDetails()) && int(r.m.GetDetails()[r.other].GetRow()) == i {
		o.Detail = r.m.GetDetails()[r.other]
		r.other++
		return o
	}
	if size := int(sparseAt(r.m.GetResultSizes(), i)); size > 0 {
		o.Result = slices.Clip(r.m.GetResults()[r.result : r.result+size])
		r.result += size
	}
	return o
}

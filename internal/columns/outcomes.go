package columns

import (
	"math"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Outcome is a row: how an attempt ended.
type Outcome struct {
	Number        uint64 // of the report; set by readers only
	Job           uint64
	Task, Attempt uint32
	TookMS        uint32
	Result        []byte           // of one that just succeeded
	Detail        *dtaskv1.Outcome // nil: it just succeeded; else its place is set by AddOutcome
}

// NewOutcomes makes a message for about n outcomes, of which the first has this
// number.
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
		o.Detail.Row = uint32(n) //nolint:gosec // less than 2^32 rows
		m.Details = append(m.Details, o.Detail)
		m.ResultSizes = appendSparse(m.GetResultSizes(), n, 0, room)
		return
	}
	m.ResultSizes = appendSparse(m.GetResultSizes(), n, uint32(len(o.Result)), room) //nolint:gosec // at most 4 KiB
	m.Results = appendBytes(m.GetResults(), o.Result, room)
}

// OutcomeReader gives the rows of a message, one after the other.
type OutcomeReader struct {
	m      *dtaskv1.Outcomes
	next   int
	result int // where the next one's begins
	other  int // the next one
}

// ReadOutcomes checks a message, which may be nil. The error is ErrMalformed.
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

// Left is how many rows come yet.
func (r *OutcomeReader) Left() int { return len(r.m.GetTasks()) - r.next }

// Next gives the next row; there must be one.
func (r *OutcomeReader) Next() Outcome {
	i := r.next
	r.next++
	o := Outcome{
		Number: r.m.GetFirst() + uint64(i), Job: r.m.GetJobs()[i], Task: r.m.GetTasks()[i], Attempt: r.m.GetAttempts()[i], //nolint:gosec // a place
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

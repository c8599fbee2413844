package worker

import (
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// What waited in a paused process for a slot must not start when it continues.
func TestAnAttemptWithALimitDoesNotStartAfterItsLease(t *testing.T) {
	t.Parallel()
	table := newAttemptTable(1)
	over := false
	table.base, table.run = t.Context(), func() {}
	table.leaseEnded = func() bool { return over }
	limited := &dtaskv1.TaskPolicy{Uses: []string{"db"}}
	if err := table.accept(assignments(work{task: 1, typ: "x", policy: limited}, work{task: 2, typ: "x"}), 1); err != nil {
		t.Fatal(err)
	}
	table.confirm(time.Now(), time.Hour)
	over = true
	a := table.next(nil, nil)
	if a == nil || a.ref.task != 2 {
		t.Fatalf("got %+v, want the attempt without a limit", a)
	}
	if err := table.accept(assignments(work{task: 3, typ: "x", policy: limited}), 1); err != nil {
		t.Fatal(err)
	}
	reports := table.take(true)
	if n := len(reports.GetOutcomes().GetTasks()); n != 2 {
		t.Errorf("got %d outcomes, want those of the tasks 1 and 3", n)
	}
}

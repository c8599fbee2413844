package worker

import (
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The leader counts the attempt until the lease ends: after that, another one may run.
func TestAnAttemptWithALimitEndsWithItsLeaseAndIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 2, DrainTimeout: -1}, map[string]Handler{"block": blocks})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "block", policy: &dtaskv1.TaskPolicy{Uses: []string{"db"}}}, work{task: 2, typ: "block"})
		for range 5 {
			l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
		}
		synctest.Wait() // the answer arrived
		n.stop("n1:1")
		<-time.After(29 * time.Second)
		if got := b.worker.Stats().Running; got != 2 {
			t.Errorf("got %d running attempts 29 s after the last heartbeat, want 2", got)
		}
		<-time.After(2 * time.Second)
		if got := b.worker.Stats().Running; got != 1 {
			t.Errorf("got %d running attempts after the lease, want the one without a limit", got)
		}
		r = n.listen("n1:1", nil)
		l = (<-r.sessions).welcome(t, 2)
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || o.GetAttempt().GetTask() != 1 {
			t.Errorf("got outcome %v, want that task 1 is released", o)
		}
	})
}

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

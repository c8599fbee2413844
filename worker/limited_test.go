package worker

import (
	"maps"
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

// The supervisor of a command knows the lease: it ends the command also while this process is
// stopped, and does not wait for a command that ignores a stop.
func TestACommandWithALimitEndsWithTheLeaseIfItRunsAtMostOnce(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	r := n.listen("n1:1", nil)
	b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"ok": returns})
	l := <-r.sessions
	l.term = 1
	l.send(t, &dtaskv1.SessionResponse{Heartbeat: 1, Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 100, LivenessTimeoutMs: 60_000, LeaseMs: 2000}})
	defer func() {
		b.drain()
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	}()
	policy := &dtaskv1.TaskPolicy{Execution: atMostOnce, Uses: []string{"db"}, KillGraceMs: 60_000}
	l.assign(t, work{task: 1, body: shell("trap '' TERM; sleep 15"), policy: policy})
	l.next(t, "a start request", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetStartRequests()) == 1 })
	l.send(t, &dtaskv1.SessionResponse{StartGrants: []*dtaskv1.AttemptRef{attemptOf(1)}})
	for m := range l.in { // no heartbeat is answered any more
		maps.Copy(l.seen, outcomesIn(m))
		for _, o := range l.seen {
			if o.GetError() != "lease ended" || !o.GetFatal() || o.tookMS > 10_000 {
				t.Errorf("got outcome %v after %d ms, want that the command was killed when its lease ended", o, o.tookMS)
			}
			return
		}
	}
	t.Error("the worker left before the command ended")
}

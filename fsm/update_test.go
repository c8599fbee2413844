package fsm

import (
	"bytes"
	"fmt"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	low    = dtaskv1.Priority_PRIORITY_LOW
	high   = dtaskv1.Priority_PRIORITY_HIGH
	urgent = dtaskv1.Priority_PRIORITY_URGENT
)

// priorities returns the priority of each task of a job.
func priorities(w *world) string {
	w.t.Helper()
	j, _ := w.s.Job(1)
	text := ""
	for i := range j.Total {
		text += fmt.Sprint(int(w.s.Policy(ref(1, i)).GetPriority()))
	}
	return text
}

func TestAnUpdateChangesTasksThatHaveNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, nil, []uint32{0})))
	live := w.assign(0, 1)
	w.do(&Update{Job: 1, Task: 1, Set: SetPriority | SetMaxRetries | SetTimeout | SetBody, Priority: high, MaxRetries: 9, TimeoutMS: 77, Body: []byte{0x2a, 1, 'x'}})
	p := w.s.Policy(ref(1, 1))
	if p.GetPriority() != high || p.GetRetry().GetMax() != 9 || p.GetTimeoutMs() != 77 || !bytes.Equal(w.s.Body(ref(1, 1)), []byte{0x2a, 1, 'x'}) {
		t.Errorf("got policy %v, body %q", p, w.s.Body(ref(1, 1)))
	}
	w.do(&Update{Job: 1, WholeJob: true, Set: SetPriority, Priority: urgent})
	if got := priorities(w); got != "0344" {
		t.Errorf("got priorities %s, want unstarted tasks with the job's priority to follow it", got)
	}
	w.do(&Update{Job: 1, WholeJob: true, Set: SetPriority, Priority: low})
	if got := priorities(w); got != "0311" {
		t.Errorf("got priorities %s, want them to follow the job's again", got)
	}
	w.do(failed(live, NextRetry))
	refused(t, w, "a started task", WrongState, &Update{Job: 1, Task: 0, Set: SetPriority, Priority: high})
	j, _ := w.s.Job(1)
	if j.Version != 4 || j.Priority != low || int(j.Policies()) != len(j.Header.GetPolicies())+3 {
		t.Errorf("got job version %d, priority %v and %d policies", j.Version, j.Priority, j.Policies())
	}
	refused(t, w, "another version", VersionMismatch, &Update{Job: 1, Task: 1, Precondition: Precondition{IfVersion: 3}, Set: SetPriority, Priority: high})
	w.do(&Update{Job: 1, Task: 1, Precondition: Precondition{IfVersion: 4}, Set: SetPriority, Priority: urgent})
	again := restored(t, snapshotOf(t, w.s))
	sameState(t, "restored", again, w.s)
	if got := again.Policy(ref(1, 1)); got.GetPriority() != urgent || got.GetTimeoutMs() != 77 {
		t.Errorf("restored: got %v", got)
	}
}

func TestAnUpdateOfAStartedJobIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	h := []HeldAttempt{w.assign(0, 1), w.assign(1, 1)}
	all := &Update{Job: 1, WholeJob: true, Set: SetTimeout, TimeoutMS: 5}
	refused(t, w, "all have started", WrongState, all)
	w.do(complete(h[0])).do(complete(h[1]))
	refused(t, w, "the job has ended", AlreadyEnded, all)
	refused(t, w, "no job", JobNotFound, &Update{Job: 2, WholeJob: true, Set: SetTimeout, TimeoutMS: 5})
	refused(t, w, "no task", TaskNotFound, &Update{Job: 1, Task: 2, Set: SetTimeout, TimeoutMS: 5})
	refused(t, w, "nothing", Malformed, &Update{Job: 1})
	refused(t, w, "the payload of a job", Malformed, &Update{Job: 1, WholeJob: true, Set: SetBody})
}

func TestATaskWaitsForTheTimeSetByAnUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, []uint32{0}, nil)))
	w.do(&Update{Job: 1, WholeJob: true, Set: SetNotBefore, NotBeforeMS: 700})
	wantStates(w, "postponed", Scheduled, Blocked, Scheduled)
	w.do(&Update{Job: 1, Task: 0, Set: SetNotBefore, NotBeforeMS: 900}, &Update{Job: 1, Task: 2, Set: SetNotBefore})
	if v, _ := w.s.Task(ref(1, 0)); v.DueMS != 900 || v.NotBefore != 900 {
		t.Errorf("got task 0 %+v", v)
	}
	wantStates(w, "one released", Scheduled, Blocked, Pending)
	w.do(&Due{Items: []AttemptRef{att(1, 0, 0)}})
	w.do(failed(w.assign(0, 1), NextRetry))
	if v, _ := w.s.Task(ref(1, 0)); v.DueMS != 500 {
		t.Errorf("got retry due at %d", v.DueMS)
	}
	w.do(&Due{Items: []AttemptRef{att(1, 0, 1)}})
	w.do(complete(w.assign(0, 1)))
	wantStates(w, "its dependent", Completed, Scheduled, Pending)
	w.do(&CancelJob{Job: 1}).do(&Revive{Job: 1})
	wantStates(w, "revived", Completed, Scheduled, Pending)
	sameState(t, "restored", restored(t, snapshotOf(t, w.s)), w.s)
}

func TestTheKeyOfAnUpdateIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	up := func(key string) *Update {
		return &Update{Job: 1, Task: 0, Precondition: Precondition{Key: key, KeyExpires: 50, Digest: [16]byte{9}}, Set: SetTimeout, TimeoutMS: 5}
	}
	w.do(up("k"))
	refused(t, w, "again", KeyConflict, up("k"))
	refused(t, w, "the key of a submission", KeyConflict, up("key-1"))
	refused(t, w, "a submission with the key", KeyConflict, &BeginUpload{ID: 2, Key: "k", Header: goldenHeader, Total: 1})
	c, known := w.s.ChangeOf("k")
	if _, submitted := w.s.ChangeOf("key-1"); submitted || c != (KeyedChange{Job: 1, Version: 2, Digest: [16]byte{9}}) || !known {
		t.Errorf("the key belongs to %+v", c)
	}
	w.do(&CancelJob{Job: 1}, &Archive{Items: []JobID{1}}).do(&ForgetKeys{Items: []string{"k", "key-1"}})
}

// The variants of a job are bounded, and equal changes share one.
func TestEqualUpdatesShareAVariant(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	for n := range 40 {
		w.do(&Update{Job: 1, Task: uint32(n % 2), Set: SetTimeout, TimeoutMS: int64(1 + n/2%3)})
	}
	if j, _ := w.s.Job(1); int(j.Policies()) != len(j.Header.GetPolicies())+3 || j.Version != 41 {
		t.Errorf("got %d policies after %d updates, want three more than submitted", j.Policies(), j.Version-1)
	}
}

// Updates do not change the cost of other tasks: the records keep their size, and
// a job without updates has no update table.
func TestAJobWithoutUpdatesHasNoUpdateTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	if w.s.jobs.get(1).updates != nil {
		t.Error("got an update table")
	}
	p := fan(3 * pageSize)
	w.submit(p)
	w.do(&Update{Job: 2, Task: 2*pageSize + 1, Set: SetTimeout, TimeoutMS: 9})
	used := 0
	for _, page := range w.s.jobs.get(2).updates.pages {
		if page != nil {
			used++
		}
	}
	if used != 1 {
		t.Errorf("got %d pages for one updated task", used)
	}
}

// A fork and its origin each see only their own updates.
func TestUpdatesAfterAForkAreIndependent(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	set := func(i uint32, ms int64) Entry {
		body := []byte{0x2a, 1, byte('a' + ms%20)}
		return Entry{Ops: []Op{&Update{Job: 1, Task: i, Set: SetTimeout | SetBody, TimeoutMS: ms, Body: body}}}
	}
	w.s.Apply(set(0, 1), nil)
	f := w.s.Fork()
	f.Apply(set(0, 2), nil)
	w.s.Apply(set(1, 3), nil)
	for what, c := range map[string]struct {
		s    *State
		want [2]int64
	}{"fork": {f, [2]int64{2, 1000}}, "origin": {w.s, [2]int64{1, 3}}} {
		for i, want := range c.want {
			if got := c.s.Policy(ref(1, uint32(i))).GetTimeoutMs(); got != want {
				t.Errorf("%s: task %d: got timeout %d, want %d", what, i, got, want)
			}
		}
	}
	if bytes.Equal(f.Body(ref(1, 0)), w.s.Body(ref(1, 0))) {
		t.Error("got a shared body")
	}
}

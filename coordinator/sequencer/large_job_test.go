package sequencer

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// uploadJob proposes job 1, whose tasks have no dependencies.
func uploadJob(do func(fsm.Op), header []byte, tasks int) {
	do(&fsm.BeginUpload{ID: 1, Key: "k", Header: header, Total: uint32(tasks)})
	sum := uint32(0)
	for first := 0; first < tasks; first += 1000 {
		chunk := fsm.NewChunkBuilder(uint32(first))
		for i := first; i < min(first+1000, tasks); i++ {
			chunk.Add(fmt.Sprint(i), 0, nil, nil)
		}
		c := chunk.Chunk()
		sum = c.Sum(sum)
		do(&fsm.AddChunk{Job: 1, Chunk: c})
	}
	do(&fsm.SealUpload{Job: 1, Sum: sum})
}

// leaderWithReady returns a sequencer with a job of which all tasks are ready.
func leaderWithReady(tb testing.TB, tasks int) *Sequencer {
	tb.Helper()
	s, err := New(testConfig())
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := proto.Marshal(&dtaskv1.JobHeader{Name: "j", Priority: dtaskv1.Priority_PRIORITY_NORMAL, Policies: []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 3_600_000}}})
	if err != nil {
		tb.Fatal(err)
	}
	x := s.batches.next(s.view)
	do := func(op fsm.Op) {
		if r := x.entry.Do(op); r != fsm.Accepted {
			tb.Fatalf("%T: %v", op, r)
		}
	}
	do(&fsm.SetLevel{Level: 3})
	do(&fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1}, AtMS: 1})
	uploadJob(do, raw, tasks)
	s.absorb(x)
	x.entry.Finish()
	return s
}

// requeueSome assigns one in a thousand tasks of job 1 to a worker, which releases them.
func requeueSome(tb testing.TB, s *Sequencer, tasks uint32) {
	tb.Helper()
	x := s.batches.next(s.view)
	x.entry.Do(&fsm.RegisterWorker{ID: 1, Name: "w", Incarnation: "a", Slots: tasks})
	for i := uint32(0); i < tasks; i += 1000 {
		ref := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
		s.dispatch.unschedule(ref.TaskRef)
		held := fsm.AssignItem{AttemptRef: ref, Worker: 1}
		if r := cmp.Or(x.entry.Assign(held), x.entry.Requeue(fsm.HeldAttempt(held), false)); r != fsm.Accepted {
			tb.Fatal(r)
		}
	}
	s.absorb(x)
	x.entry.Finish()
}

// cancelReady cancels job 1 while its tasks are ready. Their entries stay, as if another job had tasks of
// their class.
func cancelReady(tb testing.TB, s *Sequencer) {
	tb.Helper()
	x := s.batches.next(s.view)
	s.dispatch.sched.Retain(s.dispatch.policies.of(x.view, fsm.TaskRef{Job: 1}).class)
	if r := x.entry.Do(&fsm.CancelJob{Job: 1}); r != fsm.Accepted {
		tb.Fatal(r)
	}
	s.absorb(x)
	x.entry.Finish()
}

// To retry a job costs nothing for each task that was ready when the job was cancelled.
func TestEntriesOfALargeJobThatIsRetriedAreSupersededTogether(t *testing.T) {
	t.Parallel()
	const tasks = 10_000
	s := leaderWithReady(t, tasks)
	cancelReady(t, s)
	x := s.batches.next(s.view)
	stale := s.dispatch.stale
	if r := x.entry.Do(&fsm.Revive{Job: 1}); r != fsm.Accepted {
		t.Fatal(r)
	}
	s.absorb(x)
	if s.dispatch.stale != stale {
		t.Errorf("%d entries were superseded one by one", s.dispatch.stale-stale)
	}
	if n := s.dispatch.sched.Len(); n != tasks || len(s.readySet()) != tasks {
		t.Errorf("the scheduler has %d entries for %d tasks, want one for each of %d", n, len(s.readySet()), tasks)
	}
}

// A result may be evicted after a task was found that it may end, and the task be queued by an update
// before that is noticed.
func TestATaskWhoseCachedResultIsGoneHasOneEntry(t *testing.T) {
	t.Parallel()
	s := leaderWithReady(t, 1)
	ref := fsm.TaskRef{Job: 1}
	s.dispatch.results.pending = append(s.dispatch.results.pending, ref)
	s.dispatch.reuse(s.batches.next(s.view))
	if n := s.readySet()[schedulerRef(ref)]; n != 1 {
		t.Errorf("the task has %d entries, want 1", n)
	}
}

// It may be cancelled and retried before the result that may end it is used.
func TestATaskWithACachedResultThatIsRetriedHasOneEntry(t *testing.T) {
	t.Parallel()
	s := leaderWithReady(t, 3)
	for i := range uint32(3) {
		s.dispatch.unschedule(fsm.TaskRef{Job: 1, Index: i})
		s.dispatch.results.pending = append(s.dispatch.results.pending, fsm.TaskRef{Job: 1, Index: i})
	}
	cancelReady(t, s)
	x := s.batches.next(s.view)
	if r := x.entry.Do(&fsm.Revive{Job: 1}); r != fsm.Accepted {
		t.Fatal(r)
	}
	s.absorb(x)
	for ref, n := range s.readySet() {
		if n != 1 {
			t.Errorf("task %v has %d entries, want 1", ref, n)
		}
	}
}

// BenchmarkAChangeOfALargeJob is how long each operation on a job with a million ready tasks
// occupies the sequencer: until it is applied to the view and to the order of the tasks, and then
// until entries of before are swept.
func BenchmarkAChangeOfALargeJob(b *testing.B) {
	const tasks = 1_000_000
	high := &fsm.Update{Job: 1, WholeJob: true, Set: fsm.SetPriority, Priority: dtaskv1.Priority_PRIORITY_HIGH}
	for _, x := range []struct {
		name string
		op   fsm.Op
	}{
		{"move", &fsm.MoveJob{Job: 1, Queue: "etl"}},
		{"priority", high},
		{"retried", high}, // after one in a thousand tasks was requeued
		{"cancel", &fsm.CancelJob{Job: 1}},
		{"retry", &fsm.Revive{Job: 1}}, // after it was cancelled
		{"pause", &fsm.SetQueue{Name: fsm.DefaultQueue, QueueSettings: fsm.QueueSettings{Weight: 1}, Pause: fsm.QueuePause{AtMS: 1}, AtMS: 1}},
		{"labels", &fsm.SetQueue{Name: fsm.DefaultQueue, QueueSettings: fsm.QueueSettings{Weight: 1, Require: []fsm.Label{{Key: "pool", Value: "ml"}}}, AtMS: 1}},
	} {
		b.Run(x.name, func(b *testing.B) {
			var view, order, sweep time.Duration
			for range b.N {
				b.StopTimer()
				s := leaderWithReady(b, tasks)
				switch x.name {
				case "retried":
					requeueSome(b, s, tasks)
				case "retry":
					cancelReady(b, s)
				}
				s.view = s.view.Fork() // as after a commit: others read what it shares
				batch := s.batches.next(s.view)
				b.StartTimer()
				began := time.Now()
				if r := batch.entry.Do(x.op); r != fsm.Accepted {
					b.Fatal(r)
				}
				view += time.Since(began)
				began = time.Now()
				if _, isQueue := x.op.(*fsm.SetQueue); isQueue {
					s.queues.changed(batch, fsm.DefaultQueue)
				}
				s.absorb(batch)
				s.dispatch.assign(batch)
				batch.entry.Finish()
				order += time.Since(began)
				began = time.Now()
				s.dispatch.sweep(batch)
				sweep += time.Since(began)
			}
			for name, took := range map[string]time.Duration{"view": view, "order": order, "sweep": sweep} {
				b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), name+"-ms/op")
			}
		})
	}
}

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
		{"pause", &fsm.SetQueue{Name: fsm.DefaultQueue, QueueSettings: fsm.QueueSettings{Weight: 1}, Pause: fsm.QueuePause{AtMS: 1}, AtMS: 1}},
		{"labels", &fsm.SetQueue{Name: fsm.DefaultQueue, QueueSettings: fsm.QueueSettings{Weight: 1, Require: []fsm.Label{{Key: "pool", Value: "ml"}}}, AtMS: 1}},
	} {
		b.Run(x.name, func(b *testing.B) {
			var view, order, sweep time.Duration
			for range b.N {
				b.StopTimer()
				s := leaderWithReady(b, tasks)
				if x.name == "retried" {
					requeueSome(b, s, tasks)
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

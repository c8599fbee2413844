package sequencer

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// busyLeader returns a sequencer whose workers run tasks of one job.
func busyLeader(b *testing.B, workers, each int) *Sequencer {
	b.Helper()
	s, err := New(testConfig())
	if err != nil {
		b.Fatal(err)
	}
	raw, err := proto.Marshal(&dtaskv1.JobHeader{Name: "j", Policies: []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 3_600_000}}})
	if err != nil {
		b.Fatal(err)
	}
	total := workers * each
	x := s.batches.next(s.view)
	do := func(op fsm.Op) {
		if r := x.entry.Do(op); r != fsm.Accepted {
			b.Fatalf("%T: %v", op, r)
		}
	}
	uploadJob(do, raw, total)
	for i := range workers {
		w := &worker{id: fsm.WorkerID(i + 1), session: quiet{}}
		do(&fsm.RegisterWorker{ID: w.id, Name: fmt.Sprint(i), Incarnation: "a", Slots: uint32(each)})
		s.workers.byID[w.id] = w
		for k := range each {
			a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: uint32(i*each + k)}, Attempt: 1}
			if r := x.entry.Assign(fsm.AssignItem{AttemptRef: a, Worker: w.id}); r != fsm.Accepted {
				b.Fatal(r)
			}
			h := w.held.add(a)
			h.assigned, h.started, h.progressed = x.at, x.at-monoTime(time.Minute), x.at
		}
	}
	x.entry.Finish()
	return s
}

// quiet is the session of a worker that is always in contact.
type quiet struct{}

func (quiet) Send(WorkerMessage)     {}
func (quiet) Flush()                 {}
func (quiet) LastContact() time.Time { return time.Now() }
func (quiet) Close(error)            {}

func BenchmarkSweep(b *testing.B) {
	for _, x := range []struct{ workers, each int }{{100, 500}, {5000, 10}} {
		b.Run(fmt.Sprintf("%d workers × %d attempts", x.workers, x.each), func(b *testing.B) {
			s := busyLeader(b, x.workers, x.each)
			for b.Loop() {
				batch := s.batches.next(s.view)
				s.liveness.sweep(batch)
				s.timeouts.sweep(batch)
				if _, _, ok := batch.entry.Finish(); ok {
					b.Fatal("the sweep ended something")
				}
			}
		})
	}
}

package fsm

import (
	"bytes"
	"io"
	"testing"
)

// largeState returns a state with one job of memoryTasks pending tasks.
func largeState(b *testing.B) *State {
	b.Helper()
	s := New()
	for e := range largeLog {
		if r := s.Apply(e, nil); r != Accepted {
			b.Fatal(r)
		}
	}
	return s
}

// perTask reports the time of one iteration per task.
func perTask(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/memoryTasks, "ns/task")
}

// BenchmarkAssignAndComplete measures all work of the state machine for a task
// after its submission.
func BenchmarkAssignAndComplete(b *testing.B) {
	base, give, end := largeState(b), assignAll(1), completeAll(1)
	b.ReportAllocs()
	for b.Loop() {
		s := base.Fork()
		if s.Apply(give, nil) != Accepted || s.Apply(end, nil) != Accepted {
			b.Fatal("refused")
		}
	}
	perTask(b)
}

// BenchmarkEntryBuilder measures the same work in the sequencer, one item at a
// time.
func BenchmarkEntryBuilder(b *testing.B) {
	base := largeState(b)
	b.ReportAllocs()
	for b.Loop() {
		s, fx := base.Fork(), new(Effects)
		d := NewEntryBuilder(s, 1, fx)
		for i := range uint32(memoryTasks) {
			d.Assign(AssignItem(hold(1, i, 1, 1)))
		}
		for i := range uint32(memoryTasks) {
			d.Complete(CompleteItem{HeldAttempt: hold(1, i, 1, 1), DurationMS: 7})
		}
		if d.Items() != 2*memoryTasks {
			b.Fatal("refused")
		}
	}
	perTask(b)
}

// A fleet of workers, each with some attempts of the job of largeState.
const (
	fleetWorkers = 10_000
	fleetSlots   = memoryTasks / fleetWorkers
)

// BenchmarkLoseFleet measures what a replica does when a whole fleet is lost at
// once: the attempts of each worker are requeued, the worker is marked down, and
// it is forgotten later, while other workers hold as many attempts.
func BenchmarkLoseFleet(b *testing.B) {
	base := largeState(b)
	var join, lose, give, forget []Op
	for w := range WorkerID(fleetWorkers) {
		id, held, assign := w+2, new(RequeueLost), new(Assign)
		join = append(join, worker(id))
		for k := range uint32(fleetSlots) {
			h := hold(1, uint32(w)*fleetSlots+k, 1, id)
			assign.Items, held.Items = append(assign.Items, AssignItem(h)), append(held.Items, h)
			h.Worker, h.Attempt = 1, 2
			give = append(give, &Assign{Items: []AssignItem{AssignItem(h)}})
		}
		join = append(join, assign)
		lose = append(lose, held, &MarkWorkerDown{ID: id, Reason: "silent"})
		if w%1000 == 0 {
			forget = append(forget, new(ForgetWorkers))
		}
		last, _ := forget[len(forget)-1].(*ForgetWorkers)
		last.IDs = append(last.IDs, id)
	}
	base.Apply(Entry{Ops: join}, nil)
	for _, part := range []struct {
		name        string
		before, ops []Op
	}{{"lost", nil, lose}, {"forgotten", append(lose, give...), forget}} {
		b.Run(part.name, func(b *testing.B) {
			from := base.Fork()
			from.Apply(Entry{Ops: part.before}, nil)
			b.ReportAllocs()
			for b.Loop() {
				if r := from.Fork().Apply(Entry{Ops: part.ops}, nil); r != Accepted {
					b.Fatal(r)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/fleetWorkers, "ns/worker")
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	e := completeAll(1)
	var buffer []byte
	for b.Loop() {
		buffer = Encode(buffer[:0], e)
	}
	perTask(b)
	b.ReportMetric(float64(len(buffer))/memoryTasks, "B/task")
}

func BenchmarkDecode(b *testing.B) {
	data := Encode(nil, completeAll(1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(data); err != nil {
			b.Fatal(err)
		}
	}
	perTask(b)
}

// BenchmarkSubmit measures what a follower does for a submitted task.
func BenchmarkSubmit(b *testing.B) {
	var log [][]byte
	for e := range largeLog {
		log = append(log, Encode(nil, e))
	}
	b.ReportAllocs()
	for b.Loop() {
		s := New()
		for _, data := range log {
			e, err := Decode(data)
			if err != nil || s.Apply(e, nil) != Accepted {
				b.Fatal("refused", err)
			}
		}
	}
	perTask(b)
}

// BenchmarkFork measures the pause of a snapshot, which must not grow with the
// number of tasks.
func BenchmarkFork(b *testing.B) {
	s := largeState(b)
	for b.Loop() {
		_ = s.Fork()
	}
}

// BenchmarkFirstWriteAfterFork measures the later cost of a fork, for each page.
func BenchmarkFirstWriteAfterFork(b *testing.B) {
	s := largeState(b)
	var op Op = &CancelTask{Task: ref(1, 0), Reason: "x"}
	for b.Loop() {
		if s.Fork().Apply(Entry{Ops: []Op{op}}, nil) != Accepted {
			b.Fatal("refused")
		}
	}
}

func BenchmarkSnapshotWrite(b *testing.B) {
	s := largeState(b)
	for b.Loop() {
		if err := s.WriteSnapshot(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	perTask(b)
}

func BenchmarkSnapshotRead(b *testing.B) {
	var data bytes.Buffer
	if err := largeState(b).WriteSnapshot(&data); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadSnapshot(bytes.NewReader(data.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
	perTask(b)
	b.ReportMetric(float64(data.Len())/memoryTasks, "B/task")
}

// levelsOf returns a job of n tasks in levels of a width. Each task but those of the
// first level depends on two tasks of the previous one.
func levelsOf(n, width int) *jobPlan {
	deps := make([][]uint32, n)
	for i := width; i < n; i++ {
		deps[i] = []uint32{uint32(i - width), uint32(i - width + 1)}
	}
	return plan(deps...)
}

// BenchmarkWalks visits all tasks of a large job, as its status does.
func BenchmarkWalks(b *testing.B) {
	s := largeState(b)
	b.Run("AttemptStates", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, t := range s.AttemptStates(1, 0, memoryTasks) {
				if t.State == Completed {
					n++
				}
			}
		}
	})
	b.Run("CountStates", func(b *testing.B) {
		for b.Loop() {
			s.CountStates(1, 0, memoryTasks)
		}
	})
	wide := newWorld(b)
	wide.submit(levelsOf(memoryTasks, 1000))
	b.Run("LevelCounts", func(b *testing.B) {
		for b.Loop() {
			wide.s.LevelCounts(1)
		}
		perTask(b)
	})
}

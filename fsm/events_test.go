package fsm

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"
)

// The kinds of events that a story has, with what each one is about.
func story(events []Event) (list []string) {
	for _, e := range events {
		switch {
		case e.Kind == JobEndedEvent:
			list = append(list, fmt.Sprintf("%d: job %d %s", e.Index, e.Job, e.JobState))
		case e.Task != "":
			list = append(list, fmt.Sprintf("%d: %d of task %d/%s, attempt %d on %d", e.Index, e.Kind, e.Job, e.Task, e.Attempt, e.Worker))
		default:
			list = append(list, fmt.Sprintf("%d: %d of job %d, worker %d, %s%d", e.Index, e.Kind, e.Job, e.Worker, e.Name, e.Number))
		}
	}
	return list
}

func TestAnEventTellsWhatAnEntryDid(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	start := m.Index()
	m.ops(&Assign{Items: []AssignItem{AssignItem(hold(1, 0, 1, 1))}})
	m.ops(failed(hold(1, 0, 1, 1), NextRetry))
	m.ops(&Due{Items: []AttemptRef{att(1, 0, 1)}}, &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 2, 1))}})
	m.ops(&RequeueLost{Items: []HeldAttempt{hold(1, 0, 2, 1)}}, &MarkWorkerDown{ID: 1, Reason: "silent"})
	m.ops(worker(1), &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 3, 1))}})
	m.ops(failed(hold(1, 0, 3, 1), NextDead))
	m.ops(&DrainWorker{ID: 1, Until: 5})
	m.ops(&UndrainWorker{ID: 1})
	m.ops(&Revive{Job: 1})
	m.ops(&StartTerm{Term: 2, ServerID: "n2"}, &SetLevel{Level: 2})
	m.ops(&MarkWorkerDown{ID: 1})
	m.ops(&ForgetWorkers{IDs: []WorkerID{1}})
	page := m.EventsAfter(start, math.MaxInt)
	got, at := story(page.Events), func(k uint64) uint64 { return start + k }
	want := []string{
		fmt.Sprintf("%d: %d of task 1/t0, attempt 1 on 1", at(2), TaskRetryEvent),
		fmt.Sprintf("%d: %d of task 1/t0, attempt 2 on 1", at(4), TaskRequeuedEvent),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(4), WorkerDownEvent),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(5), WorkerUpEvent),
		fmt.Sprintf("%d: %d of task 1/t0, attempt 3 on 1", at(6), TaskFailedEvent),
		fmt.Sprintf("%d: job 1 failed", at(6)),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(7), WorkerDrainEvent),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(8), WorkerUndrainEvent),
		fmt.Sprintf("%d: %d of job 1, worker 0, plan0", at(9), JobRevivedEvent),
		fmt.Sprintf("%d: %d of job 0, worker 0, n22", at(10), LeaderEvent),
		fmt.Sprintf("%d: %d of job 0, worker 0, 2", at(10), LevelEvent),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(11), WorkerDownEvent),
		fmt.Sprintf("%d: %d of job 0, worker 1, w10", at(12), WorkerForgottenEvent),
	}
	if !slices.Equal(got, want) || page.Index != m.Index() || page.Floor != 0 {
		t.Errorf("got %q, index %d, floor %d;\nwant %q", got, page.Index, page.Floor, want)
	}
}

// Two replicas apply the same random log; one of them only from a snapshot on. From there,
// they have the same events, and it reports that it lacks the others.
func TestReplicasHaveTheSameEventsAtTheSameIndexes(t *testing.T) {
	t.Parallel()
	total := 0
	for seed := range uint64(20) {
		a, b := NewMachine(), NewMachine()
		a.SupportLevel(9)
		b.SupportLevel(9)
		g := newGenerator(seeded(seed))
		const entries, restoredAt = 600, 250
		for index := uint64(1); index <= entries; index++ {
			fork, _ := a.Fork()
			data := Encode(nil, Entry{NowMS: int64(index), Ops: g.ops(fork)}) //nolint:gosec // small
			for _, m := range []*Machine{a, b} {
				if m == b && index <= restoredAt {
					continue
				}
				if err, halted := m.Apply(index, data).(*HaltError); halted {
					t.Fatal(err)
				}
			}
			if index == restoredAt {
				var snapshot bytes.Buffer
				if err := a.Snapshot().Persist(&snapshot); err != nil {
					t.Fatal(err)
				}
				if err := b.Restore(&snapshot); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, got := a.EventsAfter(restoredAt, math.MaxInt), b.EventsAfter(restoredAt, math.MaxInt)
		if !slices.Equal(got.Events, want.Events) || got.Index != want.Index || got.Floor != restoredAt || want.Floor != 0 {
			t.Errorf("seed %d: got %v and floor %d, want %v", seed, story(got.Events), got.Floor, story(want.Events))
		}
		if early := b.EventsAfter(restoredAt-1, math.MaxInt); len(early.Events) > 0 || early.Floor != restoredAt {
			t.Errorf("seed %d: before the snapshot: %+v", seed, early)
		}
		total += len(want.Events)
	}
	if total < 500 {
		t.Errorf("only %d events", total)
	}
}

// The leader's sequencer tries operations on a fork first.
func TestAForkHasNoEvents(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	before := m.EventsAfter(0, math.MaxInt)
	fork, _ := m.Fork()
	if r := fork.Apply(Entry{Ops: []Op{&StartTerm{Term: 9, ServerID: "n9"}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	if after := m.EventsAfter(0, math.MaxInt); !slices.Equal(after.Events, before.Events) {
		t.Errorf("a fork has added events: %v", story(after.Events))
	}
}

// Three events in each entry: pages never split one, and together have all that are kept.
func TestPagesOfEventsHaveWholeEntriesAndTheFloorMoves(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(Event{}); size > 112 {
		t.Errorf("an event takes %d bytes, and docs/tuning.md says 112", size)
	}
	var r eventRing
	for i := range uint64(maxEvents + 10) {
		r.add(Event{Index: 1 + i/3, Number: i})
		if i == 0 && (r.blocks[0] == nil || r.blocks[1] != nil) {
			t.Error("the first event has not allocated one block")
		}
	}
	// Ten events were overwritten: the last one of entry 4, of which others are kept.
	if r.floor != 4 {
		t.Errorf("got floor %d, want 4", r.floor)
	}
	next := uint64(12)
	for after, more := r.floor, true; more; {
		var page []Event
		page, more = r.after(after, 100)
		if more && len(page) != 102 || len(page) == 0 {
			t.Fatalf("after %d: a page of %d events", after, len(page))
		}
		for _, e := range page {
			if e.Number != next || e.Index <= after {
				t.Fatalf("after %d: got event %d of entry %d, want event %d", after, e.Number, e.Index, next)
			}
			next++
		}
		after = page[len(page)-1].Index
	}
	if next != maxEvents+10 {
		t.Errorf("the last event is %d", next-1)
	}
	if page, more := r.after(math.MaxUint64, 1); len(page) > 0 || more {
		t.Errorf("after the last entry: %v, %t", page, more)
	}
}

// BenchmarkEvents compares what a replica does for jobs of one task, which have the most
// events for each operation, with and without a ring.
func BenchmarkEvents(b *testing.B) {
	const jobs = 1000
	p := plan(nil)
	var log []Entry
	for id := JobID(1); id <= jobs; id++ {
		log = append(log,
			Entry{Ops: append(p.submit(id, fmt.Sprintf("key-%d", id), 1), &Assign{Items: []AssignItem{AssignItem(hold(id, 0, 1, 1))}})},
			Entry{Ops: []Op{complete(hold(id, 0, 1, 1))}})
	}
	for _, kept := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "kept"}[kept], func(b *testing.B) {
			var ring eventRing
			for i := range maxEvents {
				ring.add(Event{Number: uint64(i)}) //nolint:gosec // small
			}
			b.ReportAllocs()
			for b.Loop() {
				s := New()
				if kept {
					s.own.events = &ring
				}
				s.Apply(Entry{Ops: []Op{worker(1)}}, nil)
				for _, e := range log {
					if r := s.Apply(e, nil); r != Accepted {
						b.Fatal(r)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/jobs, "ns/job")
		})
	}
}

// BenchmarkOneEvent measures what an event of a job costs the entry that it belongs to.
func BenchmarkOneEvent(b *testing.B) {
	s := New()
	s.own.events = new(eventRing)
	j := &job{id: 1, state: JobCompleted}
	for b.Loop() {
		s.jobEvent(JobEndedEvent, j)
	}
}

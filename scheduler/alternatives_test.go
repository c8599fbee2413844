package scheduler_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// eitherOr is a demand of a GPU, or of 8 cores instead.
func eitherOr() scheduler.Demand {
	return scheduler.Demand{
		Resources:    []scheduler.Quantity{{Name: "gpu", Amount: 1000}},
		Alternatives: [][]scheduler.Quantity{{{Name: "cpu", Amount: 8000}}},
	}
}

// onOneWorker is a scheduler with one worker that has 2 GPUs, 16 cores and many slots.
func onOneWorker() *scheduler.Scheduler {
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 100, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 2000}, {Name: "cpu", Amount: 16_000}}})
	return s
}

// assigned returns the tasks that are assigned now, and the alternatives that they take.
func assigned(s *scheduler.Scheduler) (tasks []uint32, alternatives []uint8) {
	for {
		a, ok := s.Next(nil)
		if !ok {
			return tasks, alternatives
		}
		tasks, alternatives = append(tasks, a.Task.Index), append(alternatives, s.AlternativeOf(a.Class))
	}
}

func TestATaskTakesTheFirstAlternativeThatFits(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		s := onOneWorker()
		c := s.Class(eitherOr())
		if whole {
			s.PushRun(task(0), 5, c, scheduler.Normal)
		}
		for i := range 5 {
			if !whole {
				s.Push(task(i), c, scheduler.Normal, 0)
			}
		}
		tasks, alternatives := assigned(s)
		if !slices.Equal(tasks, []uint32{0, 1, 2, 3}) || !slices.Equal(alternatives, []uint8{0, 0, 1, 1}) {
			t.Errorf("one run %v: tasks %v take alternatives %v", whole, tasks, alternatives)
		}
		if s.Depth(scheduler.Normal) != 1 || s.Len() != 1 {
			t.Errorf("one run %v: %d tasks wait, want 1", whole, s.Len())
		}
		s.Release(1, s.Alternative(c, 1), scheduler.Normal)
		if a := mustNext(t, s); a.Task != task(4) || s.AlternativeOf(a.Class) != 1 || a.Class != s.Alternative(c, 1) {
			t.Errorf("one run %v: got %+v, want task 4 with alternative 1", whole, a)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestATaskTakesAnAlternativeWhenAQuotaHoldsBackTheFirst(t *testing.T) {
	t.Parallel()
	s := onOneWorker()
	s.SetQueue("ml", scheduler.Queue{Max: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}})
	d := eitherOr()
	d.Queue = "ml"
	s.PushRun(task(0), 5, s.Class(d), scheduler.Normal)
	if _, alternatives := assigned(s); !slices.Equal(alternatives, []uint8{0, 1, 1}) {
		t.Errorf("alternatives %v were taken, want one GPU and twice 8 cores", alternatives)
	}
}

func TestAlternativesShareTheLimitOfTheirGroup(t *testing.T) {
	t.Parallel()
	s := onOneWorker()
	d := eitherOr()
	d.Limit, d.Group = 3, task(0)
	c := s.Class(d)
	s.PushRun(task(0), 5, c, scheduler.Normal)
	if tasks, _ := assigned(s); len(tasks) != 3 {
		t.Fatalf("tasks %v were assigned, want 3", tasks)
	}
	s.Release(1, c, scheduler.Normal)
	if a := mustNext(t, s); s.AlternativeOf(a.Class) != 0 {
		t.Errorf("got %+v, want the first alternative, which is free again", a)
	}
	mustNotNext(t, s)
}

func TestAKeyAndAlternativesGoTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := fleetOf(rapid.IntRange(1, 4).Draw(t, "workers"), 1)
		classes := make([]scheduler.ClassID, 6)
		for i := range classes {
			d := withKey(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"))
			for range rapid.IntRange(0, 2).Draw(t, "alternatives") {
				d.Alternatives = append(d.Alternatives, quantities(3).Draw(t, "resources"))
			}
			classes[i] = s.Class(d)
		}
		var held []scheduler.Assignment
		gone, now, pushed := map[scheduler.TaskRef]bool{}, int64(0), 0
		valid := func(ref scheduler.TaskRef) bool { return !gone[ref] }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				pushed++
				s.Push(task(pushed), rapid.SampledFrom(classes).Draw(t, "class"), drawPriority(t), 0)
			},
			"cancel": func(t *rapid.T) { gone[task(rapid.IntRange(0, pushed).Draw(t, "task"))] = true },
			"a second passes": func(*rapid.T) {
				for range 11 {
					now += 100
					s.Advance(now)
				}
			},
			"next": func(t *rapid.T) {
				if a, ok := s.Next(valid); ok {
					if gone[a.Task] {
						t.Fatalf("%+v was assigned again", a)
					}
					gone[a.Task], held = true, append(held, a)
				}
			},
			"release": func(*rapid.T) {
				if len(held) > 0 {
					s.Release(held[0].Worker, held[0].Class, held[0].Priority)
					held = held[1:]
				}
			},
			"": func(t *rapid.T) {
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func TestWhatNoWorkerCouldRunCountsOnce(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 8, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 4000}}})
	s.PushRun(task(0), 5, s.Class(eitherOr()), scheduler.Normal)
	if n := s.Unplaceable(nil); n != 5 {
		t.Errorf("%d tasks are unplaceable, want 5", n)
	}
	s.AddWorker(1, scheduler.Capacity{Slots: 8, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 16_000}}})
	if n := s.Unplaceable(nil); n != 0 {
		t.Errorf("%d tasks are unplaceable, want none: they fit the second alternative", n)
	}
	if workers, tasks := s.Fitting(s.Class(eitherOr())); workers != 1 || tasks != 2 {
		t.Errorf("%d workers could run %d tasks, want 1 and 2", workers, tasks)
	}
}

func TestAReservationEndsWhenItsTaskTakesAnotherAlternative(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 2, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 2000}}})
	s.AddWorker(2, scheduler.Capacity{Slots: 20, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 8000}}})
	small := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}})
	large := s.Class(scheduler.Demand{
		Resources:    []scheduler.Quantity{{Name: "gpu", Amount: 2000}},
		Alternatives: [][]scheduler.Quantity{{{Name: "cpu", Amount: 8000}}},
	})
	blocker := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "cpu", Amount: 1}}})
	s.Occupy(2, blocker, scheduler.Normal)
	s.Push(task(0), small, scheduler.Normal, 0)
	mustNext(t, s)
	s.Push(task(1), large, scheduler.Normal, 0)
	for i := range 40 { // so that the oldest task gets its turn
		s.Push(task(2+i), small, scheduler.Normal, 0)
	}
	for len(s.Kept()) == 0 {
		mustNext(t, s)
		s.Release(1, small, scheduler.Normal)
	}
	s.Release(2, blocker, scheduler.Normal)
	if a := mustNext(t, s); a.Task != task(1) || s.AlternativeOf(a.Class) != 1 {
		t.Fatalf("got %+v, want the large task on worker 2", a)
	}
	if kept := s.Kept(); len(kept) != 0 {
		t.Errorf("%+v is kept for a task that has started", kept)
	}
}

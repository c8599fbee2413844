package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// withKey is a demand with a key.
func withKey(key string) scheduler.Demand { return scheduler.Demand{Affinity: key} }

// workerOf returns the worker of a key among those with the numbers 1 to n, without those that
// are gone.
func workerOf(key string, n int, gone ...scheduler.WorkerID) (best scheduler.WorkerID) {
	for id := range scheduler.WorkerID(n) { //nolint:gosec // small
		if id++; !slices.Contains(gone, id) && (best == 0 || scheduler.Score(key, id) > scheduler.Score(key, best)) {
			best = id
		}
	}
	return best
}

func fleetOf(n, slots int) *scheduler.Scheduler {
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(n) { //nolint:gosec // small
		s.AddWorker(id+1, scheduler.Capacity{Slots: slots})
	}
	return s
}

func mustAssign(t *testing.T, s *scheduler.Scheduler) scheduler.Assignment {
	t.Helper()
	a, ok := s.Next(nil)
	if !ok {
		t.Fatal("no task was assigned")
	}
	return a
}

func TestATaskWaitsASecondForTheWorkerOfItsKey(t *testing.T) {
	t.Parallel()
	s := fleetOf(10, 1)
	c := s.Class(withKey("alice"))
	s.Advance(0)
	for i := range 2 {
		s.Push(task(i), c, scheduler.Normal, 0)
	}
	home := workerOf("alice", 10)
	if a := mustAssign(t, s); a.Worker != home {
		t.Fatalf("the first task is on worker %d, want %d", a.Worker, home)
	}
	for now := int64(100); now <= 900; now += 100 {
		s.Advance(now)
		if a, ok := s.Next(nil); ok {
			t.Fatalf("after %d ms: got %+v, want nothing", now, a)
		}
		if !s.AwaitsTime() {
			t.Fatal("no task waits for time to pass")
		}
	}
	// The sample that has the tasks is the one of 100 ms.
	s.Advance(1100)
	if a := mustAssign(t, s); a.Worker == home || a.Task != task(1) {
		t.Errorf("got %+v, want the second task on another worker than %d", a, home)
	}
	if s.AwaitsTime() {
		t.Error("a task waits that was assigned")
	}
}

func TestATaskStartsOnTheWorkerOfItsKeyAsSoonAsItIsFree(t *testing.T) {
	t.Parallel()
	s := fleetOf(10, 1)
	c := s.Class(withKey("alice"))
	for i := range 2 {
		s.Push(task(i), c, scheduler.Normal, 0)
	}
	first := mustAssign(t, s)
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v, want the second task to wait", a)
	}
	s.Release(first.Worker, first.Class, first.Priority)
	if a := mustAssign(t, s); a.Worker != first.Worker {
		t.Errorf("the second task is on worker %d, the first was on %d", a.Worker, first.Worker)
	}
}

func TestTasksAboveTheBoundSpillAtOnce(t *testing.T) {
	t.Parallel()
	s := fleetOf(4, 2)
	c := s.Class(withKey("alice"))
	s.PushRun(task(0), 12, c, scheduler.Normal)
	got := map[scheduler.WorkerID]int{}
	for {
		a, ok := s.Next(nil)
		if !ok {
			break
		}
		got[a.Worker]++
	}
	// 2 start at home and 6 elsewhere; 4 are left, and no slot.
	if len(got) != 4 || s.Len() != 4 {
		t.Errorf("got %v and %d tasks that wait, want all slots in use", got, s.Len())
	}
}

// The first task waits for the worker of its key, and is cancelled. The second one, which
// failed there, does not wait.
func TestATaskThatAvoidsTheWorkerOfItsKeyDoesNotWaitBehindOneThatWasCancelled(t *testing.T) {
	t.Parallel()
	s := fleetOf(3, 2)
	c, home := s.Class(withKey("alice")), workerOf("alice", 3)
	for i := range 3 {
		s.Push(task(i), c, scheduler.Normal, 0)
	}
	s.Push(task(3), c, scheduler.Normal, home)
	for range 2 {
		mustAssign(t, s)
	}
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v, want nothing", a)
	}
	a, ok := s.Next(func(ref scheduler.TaskRef) bool { return ref != task(2) })
	if !ok || a.Task != task(3) || a.Worker == home {
		t.Errorf("got %+v, %v, want the last task on another worker than %d", a, ok, home)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// classAt returns the class of a key whose worker among n is the given one.
func classAt(s *scheduler.Scheduler, id scheduler.WorkerID, n int) scheduler.ClassID {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", i); workerOf(key, n) == id {
			return s.Class(withKey(key))
		}
	}
}

// 2 tasks wait for worker 2, which is less than 1.25 times the mean, and 3 for worker 1.
func TestTasksWithinTheBoundDoNotSpillAtOnce(t *testing.T) {
	t.Parallel()
	s := fleetOf(3, 1)
	s.PushRun(scheduler.TaskRef{Job: 2}, 3, classAt(s, 2, 3), scheduler.Normal)
	s.PushRun(scheduler.TaskRef{Job: 1}, 4, classAt(s, 1, 3), scheduler.Normal)
	for range 2 {
		mustAssign(t, s)
	}
	if a := mustAssign(t, s); a.Task.Job != 1 || a.Worker != 3 {
		t.Errorf("got %+v, want a task of worker 1 on worker 3", a)
	}
}

func TestATaskThatMaySpillDoesNotStartBeforeOthers(t *testing.T) {
	t.Parallel()
	s := fleetOf(3, 1)
	s.AddWorker(3, scheduler.Capacity{Slots: 2})
	s.Advance(0)
	for job := range uint64(2) {
		s.PushRun(scheduler.TaskRef{Job: job}, 2, classAt(s, scheduler.WorkerID(job+1), 3), scheduler.Normal)
	}
	for range 2 {
		mustAssign(t, s)
	}
	s.Advance(100)
	s.Advance(1100)
	if a := mustAssign(t, s); a.Worker != 3 || a.Task.Job != 0 {
		t.Fatalf("got %+v, want that the older task spills", a)
	}
	s.Push(scheduler.TaskRef{Job: 9}, 0, scheduler.Normal, 0)
	if a := mustAssign(t, s); a.Task.Job != 9 {
		t.Errorf("got %+v, want the task without a key", a)
	}
}

func TestOnlyTheKeysOfAWorkerThatIsLostMove(t *testing.T) {
	t.Parallel()
	const workers, keys = 100, 1000
	s := fleetOf(workers, 1)
	before := make(map[string]scheduler.WorkerID)
	classes := make(map[string]scheduler.ClassID)
	for i := range keys {
		key := fmt.Sprintf("user-%d", i)
		classes[key] = s.Class(withKey(key))
		before[key] = s.KeyWorker(classes[key]).Worker
	}
	var ids []scheduler.WorkerID
	for id := range scheduler.WorkerID(workers) {
		ids = append(ids, id+1)
	}
	for key, want := range before {
		if got := scheduler.ChooseKeyWorker("", key, ids); got != want {
			t.Errorf("key %s: got worker %d without a scheduler, want %d", key, got, want)
		}
	}
	s.RemoveWorker(7)
	moved := 0
	for key, from := range before {
		to := s.KeyWorker(classes[key]).Worker
		if want := workerOf(key, workers, 7); to != want {
			t.Errorf("key %s: got worker %d, want %d", key, to, want)
		}
		if from != to {
			moved++
			if from != 7 {
				t.Errorf("key %s moved from worker %d, which is not lost", key, from)
			}
		}
	}
	if moved == 0 || moved > keys/workers*3 {
		t.Errorf("%d keys moved, want about %d", moved, keys/workers)
	}
	s.AddWorker(7, scheduler.Capacity{Slots: 1})
	for key, want := range before {
		if got := s.KeyWorker(classes[key]).Worker; got != want {
			t.Errorf("key %s: got worker %d after the return, want %d", key, got, want)
		}
	}
}

func TestKeysMoveAtOnceWhenTheirWorkerDrains(t *testing.T) {
	t.Parallel()
	s := fleetOf(3, 1)
	c, home := s.Class(withKey("alice")), workerOf("alice", 3)
	for i := range 2 {
		s.Push(task(i), c, scheduler.Normal, 0)
	}
	mustAssign(t, s)
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v, want nothing", a)
	}
	s.SetAccepting(home, false)
	if a, want := mustAssign(t, s), workerOf("alice", 3, home); a.Worker != want {
		t.Errorf("got worker %d, want %d", a.Worker, want)
	}
}

// A simulated second is 1,000 steps. Each task runs for runTime.
type affinityRun struct {
	s    *scheduler.Scheduler
	now  int64
	ends map[int64][]scheduler.Assignment
	// started counts the tasks by key and worker.
	started map[scheduler.ClassID]map[scheduler.WorkerID]int
	idle    map[scheduler.WorkerID]int64 // since when
	held    map[scheduler.WorkerID]int
	longest int64
}

func newAffinityRun(s *scheduler.Scheduler) *affinityRun {
	return &affinityRun{
		s: s, ends: map[int64][]scheduler.Assignment{}, started: map[scheduler.ClassID]map[scheduler.WorkerID]int{},
		idle: map[scheduler.WorkerID]int64{}, held: map[scheduler.WorkerID]int{},
	}
}

// step simulates one millisecond. While tasks wait, it notes how long workers are idle.
func (x *affinityRun) step(workers scheduler.WorkerID, runTime func(scheduler.TaskRef) int64) {
	x.now++
	x.s.Advance(x.now)
	for _, a := range x.ends[x.now] {
		x.held[a.Worker]--
		x.s.Release(a.Worker, a.Class, a.Priority)
	}
	delete(x.ends, x.now)
	for {
		a, ok := x.s.Next(nil)
		if !ok {
			break
		}
		end := x.now + runTime(a.Task)
		x.ends[end] = append(x.ends[end], a)
		if x.started[a.Class] == nil {
			x.started[a.Class] = map[scheduler.WorkerID]int{}
		}
		x.started[a.Class][a.Worker]++
		x.held[a.Worker]++
	}
	for id := scheduler.WorkerID(1); id <= workers; id++ {
		if x.held[id] > 0 || x.s.Len() == 0 {
			x.idle[id] = x.now
		}
		x.longest = max(x.longest, x.now-x.idle[id])
	}
}

// Run times differ, so that slots become free in no order. Each 16th task is the oldest one,
// which starts anywhere.
func TestMostTasksRunOnTheWorkerOfTheirKeyInASaturatedCluster(t *testing.T) {
	t.Parallel()
	const workers, keys, tasks = 10, 100, 50
	s := fleetOf(workers, 4)
	x := newAffinityRun(s)
	for i := range 5000 {
		if k := i / 10; i%10 == 0 && k < 4*keys { // more than what ends
			c := s.Class(withKey(fmt.Sprint("user-", k%keys)))
			s.PushRun(scheduler.TaskRef{Job: uint64(k)}, tasks, c, scheduler.Normal) //nolint:gosec // small
		}
		if i == 1000 {
			clear(x.started) // each worker has tasks now
		}
		x.step(workers, func(ref scheduler.TaskRef) int64 { return 20 + int64(ref.Job*7+uint64(ref.Index)*13)%60 })
	}
	home, all := 0, 0
	for k := range keys {
		key := fmt.Sprint("user-", k)
		for w, n := range x.started[s.Class(withKey(key))] {
			if all += n; w == workerOf(key, workers) {
				home += n
			}
		}
	}
	t.Logf("%d of %d tasks ran on the worker of their key", home, all)
	if home*100 < all*90 {
		t.Errorf("%d of %d tasks ran on the worker of their key, want 90 %%", home, all)
	}
}

func TestAKeyWithMostOfTheLoadLeavesNoWorkerIdle(t *testing.T) {
	t.Parallel()
	const workers = 10
	for _, slots := range []int{1, 2, 8} {
		s := fleetOf(workers, slots)
		hot := s.Class(withKey("hot"))
		x := newAffinityRun(s)
		others := make([]scheduler.ClassID, 40)
		for k := range others {
			others[k] = s.Class(withKey(fmt.Sprint("user-", k)))
		}
		for i := range 20_000 {
			// The load is about 0.9 of all slots, with bursts and gaps.
			if i%10 == 0 && i/1000%3 != 2 {
				for j := range slots * 3 / 2 {
					c := hot
					if j%5 >= 3 {
						c = others[(i/10+j)%len(others)]
					}
					s.Push(scheduler.TaskRef{Job: uint64(i), Index: uint32(j)}, c, scheduler.Normal, 0) //nolint:gosec // small
				}
			}
			x.step(workers, func(ref scheduler.TaskRef) int64 { return 40 + int64(ref.Job)%50 })
		}
		t.Logf("%d slots: a worker was idle for at most %d ms while tasks waited", slots, x.longest)
		if x.longest > 1100 {
			t.Errorf("%d slots: a worker was idle for %d ms while tasks waited, want 1100 at most", slots, x.longest)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Large tasks with a key start although smaller ones take what becomes free on its worker.
func TestALargeTaskWithAKeyDoesNotStarve(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	for id := range scheduler.WorkerID(3) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: cpu(4)})
	}
	small := s.Class(scheduler.Demand{Resources: cpu(1), Queue: "small"})
	large := s.Class(scheduler.Demand{Resources: cpu(4), Affinity: "alice", Queue: "large"})
	x := newAffinityRun(s)
	for i := range 10_000 {
		for s.Depth(scheduler.Normal) < 20 {
			s.Push(scheduler.TaskRef{Job: uint64(i), Index: uint32(s.Depth(scheduler.Normal))}, small, scheduler.Normal, 0) //nolint:gosec // small
		}
		if i == 500 {
			s.Push(scheduler.TaskRef{Job: 1 << 40}, large, scheduler.Normal, 0)
		}
		x.step(3, func(ref scheduler.TaskRef) int64 { return 50 + int64(ref.Job)%70 })
		if len(x.started[large]) > 0 {
			t.Logf("it started after %d ms", i-500)
			return
		}
	}
	t.Error("it has not started after 9.5 s")
}

// An urgent task with a key does not wait behind what is prefetched at its worker.
func TestPrefetchingDoesNotDelayTasksWithAKey(t *testing.T) {
	t.Parallel()
	s := fleetOf(2, 1)
	for id := range scheduler.WorkerID(2) {
		s.SetPrefetch(id+1, 4)
	}
	plain, c := s.Class(scheduler.Demand{}), s.Class(withKey("alice"))
	x := newAffinityRun(s)
	for i := range 2000 {
		for s.Depth(scheduler.Normal) < 20 {
			s.Push(scheduler.TaskRef{Job: uint64(i), Index: uint32(s.Depth(scheduler.Normal))}, plain, scheduler.Normal, 0) //nolint:gosec // small
		}
		if i == 100 {
			s.Push(scheduler.TaskRef{Job: 1 << 40}, c, scheduler.Normal, 0)
		}
		x.step(2, func(scheduler.TaskRef) int64 { return 10 })
		if len(x.started[c]) > 0 {
			return
		}
	}
	t.Error("it has not started after 1.9 s")
}

// An affinityModel is the slow and obvious form for tasks that need one slot: see next.
type affinityModel struct {
	slots, held map[scheduler.WorkerID]int
	prefetch    map[scheduler.WorkerID]int
	up          map[scheduler.WorkerID]bool
	ready       []modelKeyed // by age
	starts      int          // since the last turn by age
}

type modelKeyed struct {
	ref      scheduler.TaskRef
	key      string
	priority scheduler.Priority
	avoid    scheduler.WorkerID
	pushed   int64
}

func (m *affinityModel) free(id scheduler.WorkerID) bool {
	return m.up[id] && m.held[id] < m.slots[id]
}

func (m *affinityModel) anyFree() bool {
	for id := range m.up {
		if m.free(id) {
			return true
		}
	}
	return false
}

// fits reports whether a worker has a free slot, or may prefetch a task.
func (m *affinityModel) fits(id scheduler.WorkerID) bool {
	return m.up[id] && m.slots[id] > 0 && m.held[id] < m.slots[id]+m.prefetch[id]
}

// takes reports whether a worker takes a task of its keys: while another one is idle, not more
// of them wait there than it has slots.
func (m *affinityModel) takes(id scheduler.WorkerID) bool {
	return m.free(id) || m.fits(id) && (!m.anyFree() || m.held[id] < 2*m.slots[id])
}

// mayRun reports whether a worker is one of those that a task may be assigned to: the worker of
// its key if home is set, and else one with a free slot if there is any, but the one to avoid only
// if no other fits.
func (m *affinityModel) mayRun(t modelKeyed, home, id scheduler.WorkerID) bool {
	if home != 0 {
		return id == home
	}
	for other := range m.up {
		if other != t.avoid && (id == t.avoid && m.fits(other) || !m.free(id) && m.free(other)) {
			return false
		}
	}
	return m.fits(id)
}

// home returns the worker of a key; 0 without one.
func (m *affinityModel) home(key string) (best scheduler.WorkerID) {
	for id, up := range m.up {
		if key != "" && up && m.slots[id] > 0 && (best == 0 || scheduler.Score(key, id) > scheduler.Score(key, best)) {
			best = id
		}
	}
	return best
}

// overloaded reports whether too many tasks wait for a worker. All tasks with a key wait.
func (m *affinityModel) overloaded(id scheduler.WorkerID) bool {
	mine, all, slots := max(0, m.held[id]-m.slots[id]), 0, 0
	for other := range m.up {
		all += max(0, m.held[other]-m.slots[other])
	}
	for _, t := range m.ready {
		if h := m.home(t.key); h != 0 {
			all++
			if h == id {
				mine++
			}
		}
	}
	for _, n := range m.slots {
		slots += n
	}
	return mine > m.slots[id] && 4*mine*slots > 5*all*m.slots[id]
}

// follows reports whether an earlier task has the same key and priority: tasks of one ready
// queue start in order.
func (m *affinityModel) follows(i int) bool {
	return slices.ContainsFunc(m.ready[:i], func(t modelKeyed) bool { return t.key == m.ready[i].key && t.priority == m.ready[i].priority })
}

// next returns the task that must start, and whether it must start on the worker of its key.
func (m *affinityModel) next(old int64) (best int, home scheduler.WorkerID) {
	idle, some := m.anyFree(), false
	for id := range m.up {
		some = some || m.fits(id)
	}
	if !some {
		return -1, 0
	}
	best = -1
	before := func(i int) bool { return best < 0 || m.ready[i].priority > m.ready[best].priority }
	if m.starts%16 == 15 {
		// At its turn, the oldest task starts anywhere.
		before = func(int) bool { return best < 0 }
	}
	for i, t := range m.ready {
		h := m.home(t.key)
		if !before(i) || m.follows(i) {
			continue
		}
		if h == 0 || h == t.avoid || m.starts%16 == 15 {
			if best = i; h != 0 && h != t.avoid && m.takes(h) {
				home = h
			} else {
				home = 0
			}
		} else if m.takes(h) {
			best, home = i, h
		}
	}
	if best >= 0 {
		return best, home
	}
	for i, t := range m.ready {
		if !m.follows(i) && (idle && t.pushed <= old || m.overloaded(m.home(t.key))) && before(i) {
			best = i
		}
	}
	return best, 0
}

func TestAffinityMatchesTheReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := scheduler.New(rapid.Uint64().Draw(t, "seed"))
		m := affinityModel{
			slots: map[scheduler.WorkerID]int{}, held: map[scheduler.WorkerID]int{}, prefetch: map[scheduler.WorkerID]int{}, up: map[scheduler.WorkerID]bool{},
		}
		var running []scheduler.Assignment
		now, old, n := int64(0), int64(-1), uint32(0)
		// Without prefetching, or with one priority: else tasks would overtake what waits for a slot.
		prefetches := rapid.Bool().Draw(t, "prefetches")
		s.Advance(0)
		ids := rapid.SampledFrom([]scheduler.WorkerID{1, 2, 3, 4, 5})
		t.Repeat(map[string]func(*rapid.T){
			"add worker": func(t *rapid.T) {
				id, slots := ids.Draw(t, "worker"), rapid.IntRange(0, 3).Draw(t, "slots")
				if !prefetches {
					slots = max(slots, m.held[id])
				}
				s.AddWorker(id, scheduler.Capacity{Slots: slots})
				if m.slots[id] = slots; !m.up[id] {
					if _, known := m.up[id]; !known {
						m.up[id] = true
					}
				}
			},
			"remove worker": func(t *rapid.T) {
				id := ids.Draw(t, "worker")
				s.RemoveWorker(id)
				delete(m.slots, id)
				delete(m.held, id)
				delete(m.prefetch, id)
				delete(m.up, id)
				running = slices.DeleteFunc(running, func(a scheduler.Assignment) bool { return a.Worker == id })
			},
			"set accepting": func(t *rapid.T) {
				id, on := ids.Draw(t, "worker"), rapid.Bool().Draw(t, "accepting")
				s.SetAccepting(id, on)
				if _, known := m.up[id]; known {
					m.up[id] = on
				}
			},
			"set prefetch": func(t *rapid.T) {
				id, prefetch := ids.Draw(t, "worker"), rapid.IntRange(0, 6).Draw(t, "prefetch")
				if _, known := m.up[id]; known && prefetches {
					s.SetPrefetch(id, prefetch)
					m.prefetch[id] = prefetch
				}
			},
			"push": func(t *rapid.T) {
				n++
				x := modelKeyed{
					ref: scheduler.TaskRef{Job: 1, Index: 2 * n}, key: rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "key"),
					priority: drawPriority(t), avoid: scheduler.WorkerID(rapid.IntRange(0, 3).Draw(t, "avoid")), pushed: now,
				}
				if prefetches {
					x.priority = scheduler.Normal
				}
				s.Push(x.ref, s.Class(withKey(x.key)), x.priority, x.avoid)
				m.ready = append(m.ready, x)
			},
			"release": func(t *rapid.T) {
				if len(running) == 0 {
					return
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "attempt")
				s.Release(running[i].Worker, running[i].Class, running[i].Priority)
				m.held[running[i].Worker]--
				running = slices.Delete(running, i, i+1)
			},
			"advance": func(*rapid.T) {
				// All that was pushed until now has waited for a second.
				s.Advance(now + 100)
				old = now
				now += 1100
				s.Advance(now)
			},
			"next": func(t *rapid.T) {
				at, home := m.next(old)
				a, ok := s.Next(nil)
				if ok != (at >= 0) {
					t.Fatalf("got %+v, %v, want task %d", a, ok, at)
				}
				if !ok {
					return
				}
				if a.Task != m.ready[at].ref || !m.mayRun(m.ready[at], home, a.Worker) {
					t.Fatalf("got %+v, want %+v on worker %d", a, m.ready[at], home)
				}
				m.held[a.Worker]++
				m.starts++
				m.ready = slices.Delete(m.ready, at, at+1)
				running = append(running, a)
			},
			"": func(t *rapid.T) {
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A delayed is a simulated cluster in which a worker gets an assignment some milliseconds after
// the decision, and its end is known as many after it: so long takes the log. What a worker has
// beyond its slots waits there. A step is a millisecond.
type delayed struct {
	s           *scheduler.Scheduler
	now         int64
	took, delay int64 // of a task; of a message
	slots       int
	workers     []*delayedWorker
	events      map[int64][]func()
	// ended counts the tasks that ended, home those on the worker of their key.
	ended, home, stolen int
	longest             int64 // how long a worker was idle at most while tasks waited
}

type delayedWorker struct {
	id                scheduler.WorkerID
	running           int
	waiting           []delayedTask
	assigned, busy    int64 // when it got its last assignment; when it last had a task
	incoming, holding int   // assignments that have not arrived; that are not known to have ended
}

type delayedTask struct {
	scheduler.Assignment
	at int64
}

// newDelayed has workers that prefetch as many tasks as the sequencer lets them for their length.
func newDelayed(workers, slots, prefetch int, took, delay int64) *delayed {
	x := &delayed{s: fleetOf(workers, slots), took: took, delay: delay, slots: slots, events: map[int64][]func(){}}
	for i := range workers {
		w := &delayedWorker{id: scheduler.WorkerID(i + 1)} //nolint:gosec // small
		x.s.SetPrefetch(w.id, prefetch)
		x.workers = append(x.workers, w)
	}
	return x
}

func (x *delayed) after(d int64, f func()) { x.events[x.now+d] = append(x.events[x.now+d], f) }

func (x *delayed) step() {
	x.now++
	x.s.Advance(x.now)
	for _, f := range x.events[x.now] {
		f()
	}
	delete(x.events, x.now)
	for a, ok := x.s.Next(nil); ok; a, ok = x.s.Next(nil) {
		w, t := x.workers[a.Worker-1], delayedTask{a, x.now}
		w.assigned, w.incoming, w.holding = x.now, w.incoming+1, w.holding+1
		x.after(x.delay, func() {
			w.incoming--
			w.waiting = append(w.waiting, t)
			x.start(w)
		})
	}
	if x.now%5 == 0 {
		x.steal()
	}
	waiting := x.s.Len()
	for _, w := range x.workers {
		waiting += max(0, w.holding-x.slots)
	}
	for _, w := range x.workers {
		if w.holding > 0 || waiting == 0 {
			w.busy = x.now
		}
		x.longest = max(x.longest, x.now-w.busy)
	}
}

func (x *delayed) start(w *delayedWorker) {
	for w.running < x.slots && len(w.waiting) > 0 {
		a := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.running++
		x.after(x.took, func() {
			x.ended++
			if x.s.KeyWorker(a.Class).Worker == w.id {
				x.home++
			}
			w.running--
			x.start(w)
		})
		x.after(x.took+x.delay, func() {
			w.holding--
			x.s.Release(w.id, a.Class, a.Priority)
		})
	}
}

// steal moves what the workers have not started, as the sequencer does.
func (x *delayed) steal() {
	for _, r := range x.s.Rebalance(func(id scheduler.WorkerID) bool { return x.now-x.workers[id-1].assigned >= 10 }) {
		w := x.workers[r.From-1]
		for i := len(w.waiting) - 1; i >= 0 && r.N > 0; i-- {
			if a := w.waiting[i]; a.Class == r.Class && x.now-a.at >= r.Waited {
				w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
				r.N--
				x.stolen++
				x.after(2*x.delay, func() {
					w.holding--
					x.s.Release(w.id, a.Class, a.Priority)
					x.s.Push(a.Task, a.Class, a.Priority, w.id)
				})
			}
		}
	}
}

// pushEach pushes n tasks of each of some keys, or as many without keys, whose turns alternate.
func (x *delayed) pushEach(keyed bool, keys, n int) {
	for i := range keys * n {
		c := scheduler.ClassID(0)
		if keyed {
			c = x.s.Class(withKey(fmt.Sprint("user-", i%keys)))
		}
		x.s.Push(task(i), c, scheduler.Normal, 0)
	}
}

// All workers have tasks of their keys during the measurement.
func TestKeysCostASaturatedClusterNoThroughput(t *testing.T) {
	t.Parallel()
	const workers, slots, keys = 10, 8, 100
	for _, c := range []struct {
		took     int64
		prefetch int
	}{{10, 16}, {100, 8}, {2, 64}} {
		var ended [2]int
		for i, keyed := range []bool{false, true} {
			x := newDelayed(workers, slots, c.prefetch, c.took, 4)
			x.pushEach(keyed, keys, int(3*workers*slots*3000/c.took)/keys)
			for range 500 {
				x.step()
			}
			x.ended, x.home = 0, 0
			for range 2000 {
				x.step()
			}
			ended[i] = x.ended
			if err := x.s.Check(); err != nil {
				t.Fatal(err)
			}
			if keyed {
				t.Logf("tasks of %d ms: %d ended with keys, %d of them on the worker of their key, %d without; %d were stolen", c.took, x.ended, x.home, ended[0], x.stolen)
				if x.home*100 < x.ended*90 {
					t.Errorf("tasks of %d ms: %d of %d ran on the worker of their key, want 90 %%", c.took, x.home, x.ended)
				}
			}
		}
		if ended[1]*100 < ended[0]*97 {
			t.Errorf("tasks of %d ms: %d ended with keys, %d without; want 97 %% of them", c.took, ended[1], ended[0])
		}
	}
}

// Some workers have fewer keys than others, so that they run dry first.
func TestAJobWithKeysTakesLittleLonger(t *testing.T) {
	t.Parallel()
	const workers, slots, keys, each = 10, 8, 100, 100
	var took [2]int64
	for i, keyed := range []bool{false, true} {
		x := newDelayed(workers, slots, 16, 10, 4)
		x.pushEach(keyed, keys, each)
		for x.ended < keys*each {
			if x.step(); x.now > 20_000 {
				t.Fatalf("%d of %d tasks ended after 20 s", x.ended, keys*each)
			}
		}
		if took[i] = x.now; keyed {
			t.Logf("%d ms with keys, %d on the worker of their key, %d stolen; %d ms without", took[1], x.home, x.stolen, took[0])
		}
	}
	if took[1]*10 > took[0]*11 {
		t.Errorf("%d ms with keys, %d without; want at most a tenth more", took[1], took[0])
	}
}

// A key has most of the load, in bursts, and the workers prefetch.
func TestPrefetchingForAKeyLeavesNoWorkerIdle(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 8} {
		x := newDelayed(10, slots, 2*slots, 10, 4)
		hot := x.s.Class(withKey("hot"))
		for i := range 20_000 {
			if i%10 == 0 && i/1000%3 != 2 {
				for j := range slots * 8 {
					c := hot
					if j%5 >= 3 {
						c = x.s.Class(withKey(fmt.Sprint("user-", (i/10+j)%40)))
					}
					x.s.Push(task(i*100+j), c, scheduler.Normal, 0)
				}
			}
			x.step()
		}
		t.Logf("%d slots: a worker was idle for at most %d ms while tasks waited; %d of %d at home, %d stolen", slots, x.longest, x.home, x.ended, x.stolen)
		if x.longest > 1100 {
			t.Errorf("%d slots: a worker was idle for %d ms while tasks waited, want 1100 at most", slots, x.longest)
		}
		if err := x.s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// ofOneKey returns how many of n tasks with one key its worker gets, and how many the other
// worker gets, each with one slot and four places to prefetch.
func ofOneKey(n int) (home, other int) {
	s := fleetOf(2, 1)
	for id := scheduler.WorkerID(1); id <= 2; id++ {
		s.SetPrefetch(id, 4)
	}
	class := s.Class(withKey("ann"))
	for i := range n {
		s.Push(task(i), class, scheduler.Normal, 0)
	}
	for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
		if a.Worker == s.KeyWorker(class).Worker {
			home++
		} else {
			other++
		}
	}
	return home, other
}

func TestAWorkerPrefetchesFewTasksOfItsKeysWhileAnotherIsIdle(t *testing.T) {
	t.Parallel()
	if home, other := ofOneKey(5); other == 0 {
		t.Errorf("the worker of the key has %d tasks, and the idle one none", home)
	}
}

// Five of six workers have three tasks of a key each, with one slot and four places to prefetch.
// The third waits while the sixth worker is idle, which is within the bound of loads.
func TestAWorkerPrefetchesTasksOfItsKeysOnceNoneIsIdle(t *testing.T) {
	t.Parallel()
	s := fleetOf(6, 1)
	for id := scheduler.WorkerID(1); id <= 6; id++ {
		s.SetPrefetch(id, 4)
	}
	homes := map[scheduler.WorkerID]bool{6: true}
	n := 0
	for i := 0; len(homes) < 6; i++ {
		class := s.Class(withKey(fmt.Sprint("user-", i)))
		if home := s.KeyWorker(class).Worker; !homes[home] {
			homes[home] = true
			for range 3 {
				s.Push(task(n), class, scheduler.Normal, 0)
				n++
			}
		}
	}
	next := func() (n int) {
		for _, ok := s.Next(nil); ok; _, ok = s.Next(nil) {
			n++
		}
		return n
	}
	if got := next(); got != 10 {
		t.Fatalf("%d tasks of %d are assigned while a worker is idle, want 10", got, n)
	}
	s.Push(task(n), s.Class(scheduler.Demand{}), scheduler.Normal, 0)
	if got := next(); got != 1+5 {
		t.Errorf("%d tasks are assigned, want one to the idle worker and then those that waited", got)
	}
}

// The worker of a key holds two tasks with one slot, and another is idle. When that has got a
// task, too, the task with the key is the oldest one that can start.
func TestATaskWithAKeyIsNotOvertakenOnceNoWorkerIsIdle(t *testing.T) {
	t.Parallel()
	s := fleetOf(2, 1)
	plain, keyed := s.Class(scheduler.Demand{}), s.Class(withKey("ann"))
	home := s.KeyWorker(keyed).Worker
	s.SetPrefetch(home, 2)
	for i := range 2 {
		s.Push(task(i), plain, scheduler.Normal, 3-home)
		if a := mustAssign(t, s); a.Worker != home {
			t.Fatalf("task %d is on worker %d, want %d", i, a.Worker, home)
		}
	}
	s.Push(task(2), keyed, scheduler.Normal, 0)
	s.Push(task(3), plain, scheduler.Normal, 0)
	s.Push(task(4), plain, scheduler.Normal, 0)
	for _, want := range []int{3, 2} {
		if a := mustAssign(t, s); a.Task != task(want) {
			t.Errorf("%+v is next, want task %d", a, want)
		}
	}
}

// A worker with one slot gets places to prefetch while tasks of two keys wait for it, and the other
// worker is busy, too.
func TestTasksOfDifferentKeysStartInOrderAtTheirWorker(t *testing.T) {
	t.Parallel()
	s := fleetOf(2, 1)
	plain, first := s.Class(scheduler.Demand{}), s.Class(withKey("key-0"))
	home, second := s.KeyWorker(first).Worker, first
	for i := 1; second == first || s.KeyWorker(second).Worker != home; i++ {
		second = s.Class(withKey(fmt.Sprint("key-", i)))
	}
	s.Push(task(0), plain, scheduler.Normal, 3-home)
	mustAssign(t, s)
	for i := 1; i <= 4; i++ {
		s.Push(task(i), []scheduler.ClassID{first, second}[i%2], scheduler.Normal, 0)
	}
	s.Push(task(5), plain, scheduler.Normal, 0)
	if a := mustAssign(t, s); a.Task != task(5) {
		t.Fatalf("%+v starts, want the task without a key", a)
	}
	s.SetPrefetch(home, 4)
	for i := 1; i <= 4; i++ {
		if a := mustAssign(t, s); a.Task != task(i) {
			t.Errorf("%+v is next, want task %d", a, i)
		}
	}
}

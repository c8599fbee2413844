package scheduler_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// A waiting is a task whose bound is checked.
type waiting struct {
	queue  string
	older  int // tasks of its queue before it
	starts int // of its queue since it was pushed
	large  bool
}

// A task with a older ones in its queue, which fits somewhere and which nothing else holds
// back, starts within 16·(a+1) starts of its queue.
func TestTheWaitForATurnByAgeIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := scheduler.New(1)
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		s.AddWorker(1, scheduler.Capacity{Slots: slots})
		s.SetQueue("b", scheduler.Queue{Weight: rapid.SampledFrom([]uint32{1, 3}).Draw(t, "weight")})
		var running []scheduler.Assignment
		open := map[scheduler.TaskRef]*waiting{}
		pushed := 0
		push := func(t *rapid.T) {
			d := inQueue(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "owner"))
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				w := &waiting{queue: d.Queue}
				for _, o := range open {
					if o.queue == d.Queue {
						w.older++
					}
				}
				open[task(pushed)] = w
				s.Push(task(pushed), s.Class(d), drawPriority(t), 0)
				pushed++
			}
		}
		next := func(t *rapid.T) {
			a, ok := s.Next(nil)
			if !ok {
				return
			}
			running = append(running, a)
			queue := open[a.Task].queue
			delete(open, a.Task)
			for ref, w := range open {
				if w.queue != queue {
					continue
				}
				if w.starts++; w.starts >= 16*(w.older+1) {
					t.Fatalf("%v waits since %d starts of its queue, behind %d older tasks", ref, w.starts, w.older)
				}
			}
		}
		end := func(t *rapid.T) {
			if len(running) == 0 {
				return
			}
			i := rapid.IntRange(0, len(running)-1).Draw(t, "attempt")
			s.Release(running[i].Worker, running[i].Class, running[i].Priority)
			running = append(running[:i], running[i+1:]...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": push, "push more": push,
			"turn": func(t *rapid.T) { end(t); next(t) },
			"turns": func(t *rapid.T) {
				for range 30 {
					end(t)
					next(t)
				}
			},
		})
	})
}

// A task that needs a whole worker starts within the bound of its turn by age, and then
// the time of the longest attempt for each reservation before it. All attempts take one
// round.
func TestTheWaitOfALargeTaskIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		s := scheduler.New(1)
		cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
		for id := range workers {
			s.AddWorker(scheduler.WorkerID(id+1), scheduler.Capacity{Slots: 8, Resources: cpu(4)})
		}
		queues := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "queues")]
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)) //nolint:gosec // reproducible
		const most = 3                                                // large tasks at once
		open, due := map[scheduler.TaskRef]*waiting{}, map[scheduler.TaskRef]int{}
		var running []scheduler.Assignment
		pushed := 0
		push := func(amount int64, p scheduler.Priority) {
			w := &waiting{queue: queues[r.IntN(len(queues))], large: amount == 4}
			for _, o := range open {
				if o.queue == w.queue {
					w.older++
				}
			}
			open[task(pushed)] = w
			s.Push(task(pushed), s.Class(scheduler.Demand{Queue: w.queue, Resources: cpu(amount)}), p, 0)
			pushed++
		}
		large := 0
		for round := range 150 {
			for _, a := range running {
				s.Release(a.Worker, a.Class, a.Priority)
			}
			running = running[:0]
			for len(open) < 6*workers { // more than fits
				push(1, scheduler.Priority(1+r.IntN(4)))
			}
			if large < most && r.IntN(4) == 0 {
				push(4, scheduler.Priority(1+r.IntN(4)))
				large++
			}
			for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
				running = append(running, a)
				began := open[a.Task]
				delete(open, a.Task)
				delete(due, a.Task)
				if began.large {
					large--
				}
				for ref, w := range open {
					if w.queue == began.queue {
						w.starts++
					}
					if _, is := due[ref]; w.large && !is && w.starts >= 16*(w.older+1) {
						due[ref] = round
					}
				}
			}
			for ref, since := range due {
				if round-since > most+1 {
					t.Fatalf("%v waits since %d rounds after its turn", ref, round-since)
				}
			}
		}
	})
}

// A sharer is a queue, or an owner in a queue.
type sharer struct{ queue, owner string }

// A shared is what a sharer has.
type shared struct {
	waiting, held int
	starts        int             // of others, since it waits and holds nothing
	rivals        map[sharer]bool // that have waited and held nothing since then, with itself; nil: it does not
}

// sharers are queues or owners whose wait is checked.
type sharers map[sharer]*shared

// update is called after each change of what a sharer has.
func (all sharers) update(of sharer, waiting, held int) {
	x := all[of]
	if x == nil {
		x = &shared{}
		all[of] = x
	}
	x.waiting += waiting
	x.held += held
	switch empty := x.waiting > 0 && x.held == 0; {
	case !empty:
		x.rivals, x.starts = nil, 0
	case x.rivals == nil:
		x.rivals = make(map[sharer]bool)
		for o, other := range all {
			if other.rivals != nil && (o.owner == "" || o.queue == of.queue) {
				x.rivals[o], other.rivals[of] = true, true
			}
		}
	}
}

// started counts a start for the others that wait and hold nothing. It is called before the update.
func (all sharers) started(t *rapid.T, of sharer) {
	for o, x := range all {
		if o == of || x.rivals == nil || o.owner != "" && o.queue != of.queue {
			continue
		}
		if x.starts++; x.starts >= len(x.rivals) {
			t.Fatalf("%v holds nothing and waits, but the next %d starts are of others, and only %d of those that wait hold nothing", o, x.starts, len(x.rivals))
		}
	}
}

// A queue that holds nothing gets one of the next Q free slots, where Q is the number of waiting
// queues that hold nothing. So does an owner that holds nothing, among the starts of its queue and
// priority that are not turns by age.
func TestAQueueOrAnOwnerThatHoldsNothingGetsOneOfTheNextFreeSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := scheduler.New(1)
		for id := range rapid.IntRange(1, 3).Draw(t, "workers") {
			s.AddWorker(scheduler.WorkerID(id+1), scheduler.Capacity{Slots: rapid.IntRange(1, 4).Draw(t, "slots")})
		}
		names, ownerNames := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), rapid.SampledFrom([]string{"u", "v", "w", "x", "y", "z"})
		queues, owners := sharers{}, sharers{}
		update := func(of sharer, waiting, held int) {
			queues.update(sharer{queue: of.queue}, waiting, held)
			owners.update(of, waiting, held)
		}
		var (
			tasks   []sharer // of which each is
			running []scheduler.Assignment
		)
		push := func(t *rapid.T) {
			of := sharer{names.Draw(t, "queue"), ownerNames.Draw(t, "owner")}
			d := inQueue(of.queue, of.owner)
			d.NoPrefetch = true // it needs a free slot
			for range rapid.IntRange(1, 3).Draw(t, "n") {
				s.Push(task(len(tasks)), s.Class(d), scheduler.Normal, 0)
				tasks = append(tasks, of)
				update(of, 1, 0)
			}
		}
		next := func(t *rapid.T) {
			a, ok := s.Next(nil)
			if !ok {
				return
			}
			of := tasks[a.Task.Index]
			queues.started(t, sharer{queue: of.queue})
			if !s.StartedByAge() {
				owners.started(t, of)
			}
			update(of, -1, 1)
			running = append(running, a)
		}
		end := func(t *rapid.T) {
			if len(running) == 0 {
				return
			}
			i := rapid.IntRange(0, len(running)-1).Draw(t, "attempt")
			a := running[i]
			running = append(running[:i], running[i+1:]...)
			s.Release(a.Worker, a.Class, a.Priority)
			update(tasks[a.Task.Index], 0, -1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": push, "push more": push, "start": next, "end": end,
			"turns": func(t *rapid.T) {
				for range 20 {
					end(t)
					next(t)
				}
			},
		})
	})
}

// An end is the end of an attempt in virtual time.
type end struct {
	at  time.Duration
	job uint64
	a   scheduler.Assignment
}

type ends []end

func (h *ends) Len() int           { return len(*h) }
func (h *ends) Less(i, j int) bool { return (*h)[i].at < (*h)[j].at }
func (h *ends) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *ends) Push(x any)         { *h = append(*h, x.(end)) }
func (h *ends) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Three queues of weight 1, 2 and 4 on 100 slots, all backlogged, with tasks of 1 ms, 1 s
// and 1 min: over any 20 mean lengths, each has its share of the slots, and new leaders
// change nothing.
func TestWeightsShareSlotTimeWhateverTheLengths(t *testing.T) {
	t.Parallel()
	names, weights := []string{"a", "b", "c"}, []uint32{1, 2, 4}
	for _, takeover := range []time.Duration{0, 10 * time.Second} {
		r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
		lengths := []time.Duration{time.Millisecond, time.Second, time.Minute}
		const window = 20 * (60_001 + 1_000) * time.Millisecond / 3
		now, pushed := time.Duration(0), make([]int, 3)
		running := &ends{}
		lead := func() *scheduler.Scheduler {
			s := fleet(25, 4)
			for i, name := range names {
				s.SetQueue(name, scheduler.Queue{Weight: weights[i]})
			}
			for _, e := range *running { // as the sequencer does at the start of a term
				s.Occupy(e.a.Worker, s.Class(inQueue(names[e.job], "")), scheduler.Normal)
			}
			return s
		}
		s := lead()
		elected := now
		integral := make([]float64, 3) // slot seconds since the start of the window
		var held [3]int
		began := now
		for now < 40*window {
			for i, name := range names { // always backlogged
				for s.Loads()[name].Waiting < 3 {
					s.Push(scheduler.TaskRef{Job: uint64(i), Index: uint32(pushed[i])}, s.Class(inQueue(name, "")), scheduler.Normal, 0)
					pushed[i]++
				}
			}
			if a, ok := s.Next(nil); ok {
				heap.Push(running, end{now + lengths[r.IntN(3)], a.Task.Job, a})
				held[a.Task.Job]++
				continue
			}
			e := heap.Pop(running).(end)
			for i := range integral {
				integral[i] += float64(held[i]) * (e.at - now).Seconds()
			}
			now = e.at
			held[e.job]--
			s.Release(e.a.Worker, s.Class(inQueue(names[e.job], "")), scheduler.Normal)
			if takeover > 0 && now-elected > takeover {
				elected = now
				s = lead()
			}
			if now-began < window {
				continue
			}
			for i, w := range weights {
				want, got := 100*float64(w)/7, integral[i]/(now-began).Seconds()
				if began > 0 && math.Abs(got-want) > 1.5 {
					t.Errorf("takeover %v, at %v: queue %s held %.1f slots on average, want %.1f", takeover, now, names[i], got, want)
				}
				integral[i] = 0
			}
			began = now
		}
	}
}

package sequencer_test

import (
	"fmt"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simFleet is what workers, queues and owners hold before each start of a batch.
type simFleet struct {
	view       *fsm.State
	slots, cpu int64 // of all workers
	held       map[fsm.WorkerID]int
	running    map[string]int       // attempts by queue, also those that are not live
	saved      func(string) bool    // a queue saves quotas for a task, or did before the batch
	live       map[simFlow]simUsage // of queues, whose owner is "*", and of owners in queues
}

type simFlow struct{ queue, owner string }

// simUsage is what live attempts take.
type simUsage struct{ slots, cpu int64 }

func (u simUsage) plus(v simUsage, by int64) simUsage {
	return simUsage{u.slots + by*v.slots, u.cpu + by*v.cpu}
}

func newSimFleet(soft *sequencer.SoftState) *simFleet {
	f := &simFleet{view: soft.View, held: soft.Held, running: soft.Running, live: map[simFlow]simUsage{}}
	for id := range soft.Held { // unordered: a sum
		w := soft.View.Worker(id)
		f.slots += int64(w.Slots)
		for _, r := range w.Resources {
			f.cpu += r.Amount
		}
	}
	for job := range soft.View.Jobs(0) {
		for i := uint32(0); i < job.Total && job.Counts[fsm.Assigned] > 0; i++ {
			if soft.View.AttemptState(fsm.TaskRef{Job: job.ID, Index: i}).State == fsm.Assigned {
				f.take(&job, i, 1)
			}
		}
	}
	return f
}

// String describes what queues and owners hold.
func (f *simFleet) String() string {
	return fmt.Sprintf("they hold %v of %d slots and %d cpu", f.live, f.slots, f.cpu)
}

// take counts the attempt of a task.
func (f *simFleet) take(job *fsm.Job, i uint32, by int64) {
	u, queue := simUsage{1, cpuOfTask(f.view, job, i)}, fsm.QueueOf(job.Header)
	for _, k := range []simFlow{{queue, "*"}, {queue, job.Header.GetOwner()}} {
		f.live[k] = f.live[k].plus(u, by)
	}
}

// start counts a start, or takes it back.
func (f *simFleet) start(x *simStart, by int) {
	f.held[x.it.Worker] += by
	f.running[x.queue] += by
	f.take(&x.job, x.it.Index, int64(by))
}

// hasFreeSlot reports whether a worker has a free slot. A start there is in order: others overtake
// only what waits for a slot.
func (f *simFleet) hasFreeSlot(w *fsm.Worker) bool { return f.held[w.ID] < int(w.Slots) }

// isFull reports whether a worker holds all that it may prefetch. A start there overtakes. Any other
// one without a free slot may do so: how much of its limit a worker prefetches is unknown.
func (f *simFleet) isFull(w *fsm.Worker) bool { return f.held[w.ID] >= int(w.Slots)+simPrefetch }

// hasCapacity reports whether a queue may start any task that takes nothing but a slot, beside one
// for which its quotas are saved.
func (f *simFleet) hasCapacity(queue string) bool {
	q := f.view.Queue(queue)
	if q == nil {
		return true
	}
	running := f.running[queue]
	if f.saved(queue) {
		running++
	}
	return !q.IsPaused() && (q.MaxRunning == 0 || running < int(q.MaxRunning))
}

// holdsMore reports whether a queue certainly holds more than another one, for its weight.
func (f *simFleet) holdsMore(queue, than string) bool {
	weight := func(name string) int64 {
		if q := f.view.Queue(name); q != nil {
			return int64(q.Weight)
		}
		return 1
	}
	return f.isKnown(than) && f.more(f.live[simFlow{queue, "*"}], weight(queue), f.live[simFlow{than, "*"}], weight(than))
}

// ownerHoldsMore reports whether an owner certainly holds more in a queue than another one.
func (f *simFleet) ownerHoldsMore(queue, owner, than string) bool {
	return owner != than && f.isKnown(queue) && f.more(f.live[simFlow{queue, owner}], 1, f.live[simFlow{queue, than}], 1)
}

// isKnown reports whether all attempts of a queue are live. What others take is unknown, and may be
// of a resource that no worker has any more, so that the queue comes last.
func (f *simFleet) isKnown(queue string) bool {
	return int64(f.running[queue]) == f.live[simFlow{queue, "*"}].slots
}

// more reports whether the dominant share of one is larger than that of another one, each divided
// by a weight.
func (f *simFleet) more(a simUsage, weightA int64, b simUsage, weightB int64) bool {
	dominant := func(u simUsage) int64 { return max(u.slots*f.cpu, u.cpu*f.slots) } // in parts of slots * cpu
	return f.slots > 0 && f.cpu > 0 && dominant(a)*weightB > dominant(b)*weightA
}

package sequencer

import (
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// maxWaits is how many of the last waits of a queue are kept.
const maxWaits = 128

// maxWaitQueues bounds the queues whose waits are kept: names of queues that are not set
// come with jobs that are retried.
const maxWaitQueues = 2_000

// queueWaits has the last sampled waits of each queue from ready to assigned.
type queueWaits struct{ byQueue map[string]*lastWaits }

// lastWaits is a ring of durations.
type lastWaits struct {
	list [maxWaits]time.Duration
	n    int // used
	at   int // the next to be replaced
}

func (w *queueWaits) observe(queue string, wait time.Duration) {
	x := w.byQueue[queue]
	if x == nil {
		if len(w.byQueue) >= maxWaitQueues {
			return
		}
		x = new(lastWaits)
		w.byQueue[queue] = x
	}
	x.list[x.at] = wait
	x.at, x.n = (x.at+1)%maxWaits, min(x.n+1, maxWaits)
}

// quantiles returns durations that half of the waits, and 99 % of them, don't exceed; 0
// without any.
func (x *lastWaits) quantiles() (p50, p99 time.Duration) {
	if x.n == 0 {
		return 0, 0
	}
	sorted := x.list // a copy
	slices.Sort(sorted[:x.n])
	of := func(permille int) time.Duration { return sorted[(x.n*permille+999)/1000-1] }
	return of(500), of(990)
}

// oldestOf returns since when the oldest sampled task of each queue has been ready.
func (x *waitSampler) oldestOf(v *fsm.State) map[string]time.Time {
	oldest := make(map[string]time.Time)
	for t, since := range x.since {
		job, ok := v.Job(t.Job)
		if _, ready := v.Ready(t); !ok || !ready {
			continue
		}
		queue := fsm.QueueOf(job.Header)
		if first, known := oldest[queue]; !known || since.Before(first) {
			oldest[queue] = since
		}
	}
	return oldest
}

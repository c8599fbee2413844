package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
)

// The wait of every task is measured while at most fewReady wait; above that,
// of one index in sampleInterval, up to maxSamples.
const (
	fewReady       = 64
	sampleInterval = 64
	maxSamples     = 1 << 16
)

// waitSampler measures how long tasks wait between ready and assigned.
type waitSampler struct {
	since   map[fsm.TaskRef]time.Time
	checked time.Time // last call of oldest
}

// oldestInterval is how often the samples are searched for the oldest one: there may be
// maxSamples of them.
const oldestInterval = time.Second

// start starts the measurement of the sampled tasks of a run.
func (x *waitSampler) start(run fsm.TaskRun, now time.Time) {
	few := len(x.since)+int(run.N) <= fewReady
	for i := uint32(0); i < run.N && len(x.since) < maxSamples; i++ {
		if !few {
			i += (sampleInterval - (run.Index+i)%sampleInterval) % sampleInterval // to the next sample
		}
		if i < run.N {
			x.since[fsm.TaskRef{Job: run.Job, Index: run.Index + i}] = now
		}
	}
}

// end ends the measurement of a task; ok is false if the task was not sampled.
// While many tasks are ready, it doesn't look up those that were sampled only
// because few were: a look-up for each task costs more than the samples are
// worth.
func (x *waitSampler) end(t fsm.TaskRef, ready int) (since time.Time, ok bool) {
	if ready > fewReady && t.Index%sampleInterval != 0 {
		return time.Time{}, false
	}
	if since, ok = x.since[t]; ok {
		delete(x.since, t)
	}
	return since, ok
}

// oldest returns for how long the oldest sampled task has been ready; ok is false if the
// last search is less than oldestInterval old. It drops samples of tasks that are no
// longer ready where it finds them.
func (x *waitSampler) oldest(v *fsm.State, now time.Time) (age time.Duration, ok bool) {
	if len(x.since) > 0 && now.Sub(x.checked) < oldestInterval {
		return 0, false
	}
	x.checked = now
	first := now
	for t, since := range x.since {
		if !since.Before(first) {
			continue
		}
		if _, ready := v.Ready(t); ready {
			first = since
		} else {
			delete(x.since, t)
		}
	}
	return now.Sub(first), true
}

// drop ends the measurement of tasks that are no longer ready.
func (x *waitSampler) drop(v *fsm.State) {
	for t := range x.since {
		if _, ready := v.Ready(t); !ready {
			delete(x.since, t)
		}
	}
}

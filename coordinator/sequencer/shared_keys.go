package sequencer

import (
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// sharedKeys lets jobs with a concurrency key run. The replicated state knows which jobs hold
// a key. A job holds it longer than until its end: in the state, a cancelled attempt ends
// immediately, and its worker may still be stopping it. The key is free when no worker holds
// such an attempt, but no later than Config.StopTimeout after the end of the job: as for
// cleanup tasks, an attempt that can't be stopped must not keep others from starting.
type sharedKeys struct {
	waiting  map[string][]fsm.JobID // by key: jobs whose start time has come, ascending
	dirty    []string               // keys that may be free
	stopping map[fsm.JobID]stoppingJob
	// unconfirmed are the workers that have not reported to this leader. Until they have, or
	// are down, the keys in doubt of jobs that ended shortly before the term are not free.
	unconfirmed []fsm.WorkerID
	doubts      map[string]time.Time // until when, at the latest
}

// stoppingJob is a job that has ended and of which an attempt may still run.
type stoppingJob struct {
	key   string
	until time.Time
}

func newSharedKeys() sharedKeys {
	return sharedKeys{waiting: make(map[string][]fsm.JobID), stopping: make(map[fsm.JobID]stoppingJob), doubts: make(map[string]time.Time)}
}

// rebuildEnded takes a job that had ended before the term, also if it was retried since.
func (k *sharedKeys) rebuildEnded(b *batch, job *fsm.Job) {
	key, ago := fsm.ConcurrencyKey(job.Header), b.entry.NowMS()-max(job.EndedMS, job.RevivedMS)
	if !b.cfg.ClockAgrees() {
		ago = 0 // by a clock that is ahead, it seems older than it is
	}
	if left := b.cfg.StopTimeout - time.Duration(max(ago, 0))*time.Millisecond; key != "" && left > 0 {
		k.doubts[key] = b.now.Add(b.cfg.StopTimeout)
	}
}

// rebuildWorkers notes the workers that may hold attempts of jobs that ended before the term.
func (k *sharedKeys) rebuildWorkers(workers *workerTable) {
	if len(k.doubts) > 0 {
		k.unconfirmed = slices.Sorted(maps.Keys(workers.byID))
	}
}

// wait lets a job wait for its key.
func (k *sharedKeys) wait(key string, id fsm.JobID) {
	list := k.waiting[key]
	if at, found := slices.BinarySearch(list, id); !found {
		k.waiting[key] = slices.Insert(list, at, id)
	}
	k.dirty = append(k.dirty, key)
}

// ended is called when a job has ended, also if it was resumed since.
func (k *sharedKeys) ended(b *batch, job *fsm.Job, workers *workerTable) {
	key := fsm.ConcurrencyKey(job.Header)
	if key == "" {
		return
	}
	k.stops(b, job, key, workers)
	k.dirty = append(k.dirty, key)
}

// stops notes a job that has ended while a worker still stops attempts of it.
func (k *sharedKeys) stops(b *batch, job *fsm.Job, key string, workers *workerTable) {
	if workers.isStopping(job.ID) {
		k.stopping[job.ID] = stoppingJob{key, b.now.Add(b.cfg.StopTimeout)}
	}
}

// run opens the gates of the jobs whose keys are free.
func (k *sharedKeys) run(b *batch, g *gates) {
	workers := g.workers
	k.confirm(b, workers)
	if len(k.dirty)+len(k.stopping)+len(k.doubts) == 0 {
		return // most cycles
	}
	for id, s := range k.stopping {
		if !workers.isStopping(id) || !b.now.Before(s.until) {
			delete(k.stopping, id)
			k.dirty = append(k.dirty, s.key)
		}
	}
	for key, until := range k.doubts {
		if len(k.unconfirmed) == 0 || !b.now.Before(until) {
			delete(k.doubts, key)
			k.dirty = append(k.dirty, key)
		}
	}
	if len(k.dirty) == 0 {
		return // most cycles while jobs stop, which may be thousands
	}
	slices.Sort(k.dirty)
	keys := slices.Compact(k.dirty)
	k.dirty = nil
	stopping := make(map[string]int) // jobs by key
	for _, s := range k.stopping {
		stopping[s.key]++
	}
	for i, key := range keys {
		if b.full() {
			k.dirty = append(k.dirty, keys[i:]...)
			return
		}
		k.release(b, key, stopping[key], g)
	}
}

// confirm takes what workers hold that have reported since the begin of the term.
func (k *sharedKeys) confirm(b *batch, workers *workerTable) {
	k.unconfirmed = slices.DeleteFunc(k.unconfirmed, func(id fsm.WorkerID) bool {
		w := workers.byID[id]
		if w == nil || w.session == nil {
			return w == nil
		}
		for i := range w.held.list {
			x := &w.held.list[i]
			if job, ok := b.view.Job(x.Job); x.stopped && ok && (job.State.Terminal() || job.Gated) && fsm.ConcurrencyKey(job.Header) != "" {
				k.stops(b, &job, fsm.ConcurrencyKey(job.Header), workers)
			}
		}
		return true
	})
}

// release lets the jobs run that wait for a key, the oldest first, as long as it is free.
// stopping is the number of ended jobs that still hold it.
func (k *sharedKeys) release(b *batch, key string, stopping int, g *gates) {
	if _, doubt := k.doubts[key]; doubt {
		return
	}
	for list := k.waiting[key]; len(list) > 0; {
		job, ok := b.view.Job(list[0])
		switch {
		case !ok || !job.Gated || job.Waiting: // it was cancelled meanwhile
		case job.StartMS() > b.entry.NowMS(): // the wall clock was set back
			g.take(b, &job)
		case b.view.Holders(key)+stopping >= fsm.ConcurrencyLimit(job.Header):
			return
		default:
			b.entry.Do(&fsm.OpenGate{Job: job.ID})
		}
		list = list[1:]
		k.waiting[key] = list
	}
	delete(k.waiting, key)
}

package sequencer

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

const (
	// archiveAtOnce bounds the jobs that leave the state in one entry.
	archiveAtOnce = 4096
	// expireEvery is how often history is told what is too old, if no job leaves.
	expireEvery = 10 * time.Minute
)

// endedJob is a job that is kept for those who ask.
type endedJob struct {
	id    fsm.JobID
	tasks uint64
	atMS  int64
}

// endedJobs are kept jobs, the first to leave first.
type endedJobs struct {
	list  []endedJob
	tasks uint64
}

func (e *endedJobs) add(j endedJob) {
	e.list = append(e.list, j)
	e.tasks += j.tasks
}

// remove takes out a job, if it is there.
func (e *endedJobs) remove(id fsm.JobID) {
	if i := slices.IndexFunc(e.list, func(j endedJob) bool { return j.id == id }); i >= 0 {
		e.tasks -= e.list[i].tasks
		e.list = slices.Delete(e.list, i, i+1)
	}
}

// ended are the jobs that have ended and are still in the state.
type ended struct {
	done endedJobs // all tasks completed: nobody can do anything with them but read
	open endedJobs // they can be retried, and may have dead letters
}

func (e *ended) jobs() int     { return len(e.done.list) + len(e.open.list) }
func (e *ended) tasks() uint64 { return e.done.tasks + e.open.tasks }

// add takes a job in that has ended.
func (e *ended) add(job *fsm.Job) {
	j := endedJob{id: job.ID, tasks: uint64(job.Total), atMS: job.EndedMS}
	if job.Counts[fsm.Completed] == job.Total {
		e.done.add(j)
		return
	}
	e.open.add(j)
}

func (e *ended) remove(id fsm.JobID) {
	e.done.remove(id)
	e.open.remove(id)
}

// jobEnded turns a job from work into memory, unless it has gone on already.
func (s *Sequencer) jobEnded(id fsm.JobID) {
	job, ok := s.view.Job(id)
	if ok && !job.State.Terminal() {
		return
	}
	if j := s.jobs[id]; j != nil {
		for _, first := range slices.Sorted(maps.Keys(j.limited)) {
			s.sched.Retire(j.limited[first])
		}
	}
	delete(s.jobs, id)
	if !ok {
		return
	}
	s.ended.add(&job)
	s.stale += uint64(job.Total - job.Counts[fsm.Completed])
	s.watch.forgetJob(id)
}

// archiveJobs hands over to history what is kept too long or too much of, oldest
// first, and of too much those first that can only be read. What is still to be
// told of a job is made from it, so that it stays until then, unless memory is short.
func (s *Sequencer) archiveJobs(b *batch) {
	if s.cfg.HistoryBusy() {
		return
	}
	op := &fsm.Archive{}
	done, open := int64(math.MinInt64), int64(math.MinInt64)
	if s.cfg.ClockAgrees() {
		done = b.draft.NowMS() - s.cfg.KeepCompleted.Milliseconds()
		open = b.draft.NowMS() - s.cfg.KeepFor.Milliseconds()
		if s.cfg.HistoryAge > 0 {
			op.EndedBefore = max(0, b.draft.NowMS()-s.cfg.HistoryAge.Milliseconds())
		}
	}
	a := archiving{Sequencer: s}
	a.from(&s.ended.done, done, s.cfg.KeepCompletedTasks)
	a.from(&s.ended.open, open, s.cfg.KeepTasks)
	op.IDs = a.ids
	if len(op.IDs) > 0 || op.EndedBefore > 0 && b.now.Sub(s.expiredAt) > expireEvery {
		s.expiredAt = b.now
		b.draft.Do(op)
	}
}

// archiving chooses the jobs that leave in one entry.
type archiving struct {
	*Sequencer

	ids     []fsm.JobID
	waiting map[fsm.JobID]bool // jobs that somebody has yet to be told of; nil until it is needed
}

// from takes jobs of a list that ended at or before a time, and, of too many, or with more
// tasks than most, the oldest.
func (a *archiving) from(e *endedJobs, oldest int64, most uint64) {
	var held []endedJob // do not count
	for len(e.list) > 0 && len(a.ids) < archiveAtOnce {
		j := e.list[0]
		short := a.ended.tasks() > a.cfg.KeepTasks
		if j.atMS > oldest && a.ended.jobs() <= a.cfg.KeepJobs && !short && e.tasks <= most {
			break
		}
		e.list = e.list[1:]
		if a.waiting == nil {
			a.waiting = a.noticedJobs()
		}
		if a.waiting[j.id] && !short {
			held = append(held, j)
			continue
		}
		a.ids = append(a.ids, j.id)
		e.tasks -= j.tasks
		a.tasks -= j.tasks
	}
	if len(held) > 0 {
		e.list = append(held, e.list...)
	}
}

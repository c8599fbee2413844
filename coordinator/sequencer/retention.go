package sequencer

import (
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

const (
	// maxArchived bounds the jobs that leave the state in one entry.
	maxArchived = 4096
	// maxForgottenKeys bounds the keys, and the results, that one entry
	// forgets.
	maxForgottenKeys = 500
	// maxForgottenWorkers bounds the workers that one entry forgets.
	maxForgottenWorkers = 1000
	// maxForgottenIdentities bounds the identities and join tokens that one entry
	// forgets.
	maxForgottenIdentities = 1000
	// expireInterval is how often history gets its expiry time if no job leaves
	// the state.
	expireInterval = 10 * time.Minute
)

// retention removes what the state keeps no longer: ended jobs, which move to
// history, and expired keys, results, workers and identities. It removes a part at each
// sweep.
type retention struct {
	cfg       *Config
	workers   *workerTable
	completed endedJobs // all tasks completed: they can only be read
	others    endedJobs // can be retried, and may have dead letters
	tasks     uint64    // of all jobs in the state
	expiredAt time.Time // when history last got its expiry time
	shard     int       // of the keys and results that the next sweep expires
}

// endedJob is an ended job in the state.
type endedJob struct {
	id    fsm.JobID
	tasks uint64
	atMS  int64
}

// endedJobs are ended jobs in the order in which they leave.
type endedJobs struct {
	list  []endedJob
	tasks uint64
}

func (e *endedJobs) add(j endedJob) {
	e.list = append(e.list, j)
	e.tasks += j.tasks
}

func (e *endedJobs) remove(id fsm.JobID) {
	if i := slices.IndexFunc(e.list, func(j endedJob) bool { return j.id == id }); i >= 0 {
		e.tasks -= e.list[i].tasks
		e.list = slices.Delete(e.list, i, i+1)
	}
}

func (r *retention) endedJobs() int     { return len(r.completed.list) + len(r.others.list) }
func (r *retention) endedTasks() uint64 { return r.completed.tasks + r.others.tasks }

// add adds a job that has ended.
func (r *retention) add(job *fsm.Job) {
	j := endedJob{id: job.ID, tasks: uint64(job.Total), atMS: job.EndedMS}
	if job.Counts[fsm.Completed] == job.Total {
		r.completed.add(j)
	} else {
		r.others.add(j)
	}
}

// remove removes a job that was resumed.
func (r *retention) remove(id fsm.JobID) {
	r.completed.remove(id)
	r.others.remove(id)
}

// sweep removes a part of what is kept no longer. Nothing expires by age while
// the wall clock is in doubt.
func (r *retention) sweep(b *batch) {
	trusted := r.cfg.ClockAgrees()
	if trusted {
		if keys := b.view.ExpiredKeys(r.shard, b.entry.NowMS(), maxForgottenKeys); len(keys) > 0 {
			b.entry.Do(&fsm.ForgetKeys{Items: keys})
		}
		if keys := b.view.ExpiredResults(r.shard, b.entry.NowMS(), maxForgottenKeys); len(keys) > 0 {
			b.entry.Do(&fsm.ForgetResults{Items: keys})
		}
		if r.shard == 0 {
			forgetWorkers(b)
			forgetIdentities(b)
		}
	}
	r.shard = (r.shard + 1) % fsm.KeyShards
	if !r.cfg.HistoryBusy() {
		r.archive(b, trusted)
	}
}

// forgetWorkers forgets workers that have been down for too long.
func forgetWorkers(b *batch) {
	var ids []fsm.WorkerID
	oldest := b.entry.NowMS() - max(b.cfg.KeepWorkers, b.cfg.leaseMemory()).Milliseconds()
	for w := range b.view.Workers() {
		if w.State == fsm.WorkerDown && w.DownSince < oldest &&
			len(ids) < maxForgottenWorkers && b.view.LiveAttempts(w.ID) == 0 {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 0 {
		b.entry.Do(&fsm.ForgetWorkers{IDs: ids})
	}
}

// keepIdentitiesNearlyFull is how long ended identities are remembered while the cluster has
// almost as many as it can have: a join that is repeated soon still finds its own.
const keepIdentitiesNearlyFull = time.Hour

// forgetIdentities forgets identities and join tokens that ended long ago.
func forgetIdentities(b *batch) {
	keep := b.cfg.KeepIdentities
	if b.view.IdentitiesNearlyFull() {
		keep = min(keep, keepIdentitiesNearlyFull)
	}
	before := b.entry.NowMS() - keep.Milliseconds()
	if b.view.HasEndedIdentities(before) {
		b.entry.Do(&fsm.ForgetIdentities{BeforeMS: before, Max: maxForgottenIdentities})
	}
}

// archive moves jobs to history that are too old or too many: the oldest first,
// and of too many those first that can only be read.
func (r *retention) archive(b *batch, clockTrusted bool) {
	completed, others, expired := int64(math.MinInt64), int64(math.MinInt64), int64(0)
	if clockTrusted {
		completed = b.entry.NowMS() - r.cfg.KeepCompleted.Milliseconds()
		others = b.entry.NowMS() - r.cfg.KeepFor.Milliseconds()
		if r.cfg.HistoryAge > 0 {
			expired = b.entry.NowMS() - r.cfg.HistoryAge.Milliseconds()
		}
	}
	a := archiving{retention: r, view: b.view}
	a.take(&r.completed, completed, r.cfg.KeepCompletedTasks)
	a.take(&r.others, others, r.cfg.KeepTasks)
	if len(a.ids) > 0 {
		b.entry.Do(&fsm.Archive{Items: a.ids})
	}
	if expired > 0 && (len(a.ids) > 0 || b.now.Sub(r.expiredAt) > expireInterval) {
		r.expiredAt = b.now
		b.entry.Do(&fsm.ExpireHistory{EndedBefore: expired})
	}
}

// archiving chooses the jobs that leave in one entry.
type archiving struct {
	*retention
	view    *fsm.State
	ids     []fsm.JobID
	pending map[fsm.JobID]bool // jobs with undelivered notifications; nil until needed
	leased  map[fsm.JobID]bool // jobs with attempts that count towards limits on lost workers; nil until needed
}

// take takes jobs of a list that ended at or before oldestMS, and the oldest
// ones if there are too many, or if the list has more than maxTasks tasks. A
// job with undelivered notifications, which are made from it, stays unless
// memory is short. So does one of which a worker stops attempts, or may: the
// next leader must know what limits these count towards.
func (a *archiving) take(e *endedJobs, oldestMS int64, maxTasks uint64) {
	var kept []endedJob
	for len(e.list) > 0 && len(a.ids) < maxArchived {
		j := e.list[0]
		short := a.endedTasks() > a.cfg.KeepTasks
		if j.atMS > oldestMS && a.endedJobs() <= a.cfg.KeepJobs && !short && e.tasks <= maxTasks {
			break
		}
		e.list = e.list[1:]
		if a.pending == nil {
			a.pending = pendingNotifications(a.view)
		}
		if (a.pending[j.id] || a.mayStop(j.id)) && !short {
			kept = append(kept, j)
			continue
		}
		a.ids = append(a.ids, j.id)
		e.tasks -= j.tasks
		a.tasks -= j.tasks
	}
	if len(kept) > 0 {
		e.list = append(kept, e.list...)
	}
}

// mayStop reports whether a worker stops attempts of an ended job, or may do so and is lost or has
// not reported to this leader yet.
func (a *archiving) mayStop(id fsm.JobID) bool {
	if a.leased == nil {
		a.leased = a.workers.leases.limitedJobs()
	}
	return a.workers.isStopping(id) || a.leased[id] || a.workers.settling.pending != nil
}

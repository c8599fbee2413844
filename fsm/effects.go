package fsm

// Effects collects what an entry changed, for the sequencer. A nil *Effects
// collects nothing. Lists are in the order of the changes.
type Effects struct {
	Ready         []TaskRun     // became pending
	Scheduled     []DueTask     // became scheduled
	EndedAttempts []HeldAttempt // live attempts that were cancelled: their workers must stop
	EndedJobs     []JobID
	Revived       []JobID // continue after they had ended or stopped
	// RevivedTasks are the revived tasks that their last attempt did not end: they may have been
	// ready when they ended.
	RevivedTasks []TaskRun
	Sealed       []JobID
	Gated        []JobID   // wait for nothing but their closed gates
	Dead         []TaskRef // became dead letters

	Notifications        int // queued
	NotificationsDropped int // dropped from a full queue
	// Archived collects the jobs that leave for history. nil collects nothing.
	Archived *ArchiveBatch

	Reordered []TaskRun // updated while ready: their order may have changed
	// ReorderedJobs are the jobs of which all ready tasks were updated. These tasks are not in
	// Reordered.
	ReorderedJobs []JobID
	MovedJobs     []JobID // to another queue, with all ready tasks; not in ReorderedJobs

	// RevokedWorkers are the workers whose identities were revoked: their attempts must be
	// requeued.
	RevokedWorkers []WorkerID
}

// TaskRun is N consecutive tasks of a job.
type TaskRun struct {
	TaskRef
	N uint32
}

// DueTask is a task that waits for a time.
type DueTask struct {
	AttemptRef
	DueMS int64
}

// Reset empties the lists and keeps their memory.
func (fx *Effects) Reset() {
	fx.Ready, fx.Scheduled, fx.EndedAttempts = fx.Ready[:0], fx.Scheduled[:0], fx.EndedAttempts[:0]
	fx.EndedJobs, fx.Sealed, fx.Revived, fx.RevivedTasks = fx.EndedJobs[:0], fx.Sealed[:0], fx.Revived[:0], fx.RevivedTasks[:0]
	fx.Dead, fx.Notifications, fx.NotificationsDropped = fx.Dead[:0], 0, 0
	fx.Reordered, fx.RevokedWorkers, fx.Gated, fx.MovedJobs = fx.Reordered[:0], fx.RevokedWorkers[:0], fx.Gated[:0], fx.MovedJobs[:0]
	fx.ReorderedJobs = fx.ReorderedJobs[:0]
}

func (fx *Effects) ready(t TaskRef) { fx.readyRun(t, 1) }

// readyRun extends the last run if the tasks follow it.
func (fx *Effects) readyRun(t TaskRef, n uint32) {
	if fx == nil {
		return
	}
	fx.Ready = extendRuns(fx.Ready, t, n)
}

// extendRuns appends a run, or extends the last one if it follows it.
func extendRuns(list []TaskRun, t TaskRef, n uint32) []TaskRun {
	if last := len(list) - 1; last >= 0 && list[last].Job == t.Job && list[last].Index+list[last].N == t.Index {
		list[last].N += n
		return list
	}
	return append(list, TaskRun{t, n})
}

func (fx *Effects) scheduled(a AttemptRef, due int64) {
	if fx != nil {
		fx.Scheduled = append(fx.Scheduled, DueTask{a, due})
	}
}

func (fx *Effects) endedAttempt(h HeldAttempt) {
	if fx != nil {
		fx.EndedAttempts = append(fx.EndedAttempts, h)
	}
}

func (fx *Effects) endedJob(id JobID) {
	if fx != nil {
		fx.EndedJobs = append(fx.EndedJobs, id)
	}
}

func (fx *Effects) revived(id JobID) {
	if fx != nil {
		fx.Revived = append(fx.Revived, id)
	}
}

func (fx *Effects) revivedTask(t TaskRef) {
	if fx != nil {
		fx.RevivedTasks = extendRuns(fx.RevivedTasks, t, 1)
	}
}

func (fx *Effects) movedJob(id JobID) {
	if fx != nil {
		fx.MovedJobs = append(fx.MovedJobs, id)
	}
}

// reordered reports ready tasks of a job that were updated; all means that no other is ready.
func (fx *Effects) reordered(tasks []TaskRun, all bool) {
	switch {
	case fx == nil || len(tasks) == 0:
	case all:
		fx.ReorderedJobs = append(fx.ReorderedJobs, tasks[0].Job)
	default:
		fx.Reordered = append(fx.Reordered, tasks...)
	}
}

func (fx *Effects) sealed(id JobID) {
	if fx != nil {
		fx.Sealed = append(fx.Sealed, id)
	}
}

func (fx *Effects) gated(id JobID) {
	if fx != nil {
		fx.Gated = append(fx.Gated, id)
	}
}

func (fx *Effects) dead(t TaskRef) {
	if fx != nil {
		fx.Dead = append(fx.Dead, t)
	}
}

func (fx *Effects) revokedWorker(id WorkerID) {
	if fx != nil {
		fx.RevokedWorkers = append(fx.RevokedWorkers, id)
	}
}

func (fx *Effects) notificationQueued() {
	if fx != nil {
		fx.Notifications++
	}
}

func (fx *Effects) notificationDropped() {
	if fx != nil {
		fx.NotificationsDropped++
	}
}

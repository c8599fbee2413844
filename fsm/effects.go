package fsm

// Effects is what applying did, for those who act on it: the sequencer. A nil
// *Effects collects nothing. Lists are in the order of the effects.
type Effects struct {
	Ready     []TaskRef  // became pending
	Scheduled []DueTask  // became scheduled
	Ended     []HeldItem // live attempts that ended without an outcome of their own: their workers are told to stop
	EndedJobs []JobID
	Revived   []JobID // went on after they had ended or stopped
	Sealed    []JobID
}

// DueTask is a task that waits for a time.
type DueTask struct {
	AttemptRef
	DueMS int64
}

// Reset empties the lists and keeps their memory.
func (fx *Effects) Reset() {
	fx.Ready, fx.Scheduled, fx.Ended = fx.Ready[:0], fx.Scheduled[:0], fx.Ended[:0]
	fx.EndedJobs, fx.Sealed, fx.Revived = fx.EndedJobs[:0], fx.Sealed[:0], fx.Revived[:0]
}

func (fx *Effects) ready(t TaskRef) {
	if fx != nil {
		fx.Ready = append(fx.Ready, t)
	}
}

func (fx *Effects) scheduled(a AttemptRef, due int64) {
	if fx != nil {
		fx.Scheduled = append(fx.Scheduled, DueTask{a, due})
	}
}

func (fx *Effects) endedAttempt(h HeldItem) {
	if fx != nil {
		fx.Ended = append(fx.Ended, h)
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

func (fx *Effects) sealed(id JobID) {
	if fx != nil {
		fx.Sealed = append(fx.Sealed, id)
	}
}

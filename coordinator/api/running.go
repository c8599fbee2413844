package api

import (
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// An assigned task is shown as running if the log has the start of its attempt, or if
// its worker reported to this leader that the attempt runs. Only starts of at-most-once
// attempts are in the log, and every replica knows them. Only the leader knows the
// reports, and a new one gets them when the worker has opened a session with it.

// observation returns what was observed about the live attempt of a task; zero if
// nothing was.
func observation(t fsm.AttemptState, o sequencer.Observation) sequencer.Observation {
	if t.State != fsm.Assigned || o.Attempt != t.Attempt {
		return sequencer.Observation{}
	}
	return o
}

// isRunning reports whether a task is shown as running. o is of any of its attempts.
func isRunning(t fsm.AttemptState, o sequencer.Observation) bool {
	return t.Runs || onlyObserved(t, o)
}

// onlyObserved reports whether a task runs and fsm.Job.Running doesn't count it.
func onlyObserved(t fsm.AttemptState, o sequencer.Observation) bool {
	x := observation(t, o)
	return !t.Runs && x.IsRunning()
}

// countObserved counts the running tasks of a job that fsm.Job.Running doesn't count.
func countObserved(st *fsm.State, job fsm.Job, observed map[uint32]sequencer.Observation) uint32 {
	n := uint32(0)
	if job.Counts[fsm.Assigned] == job.Running {
		return 0
	}
	for i, o := range observed {
		if onlyObserved(st.AttemptState(fsm.TaskRef{Job: job.ID, Index: i}), o) {
			n++
		}
	}
	return n
}

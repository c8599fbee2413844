package api

import (
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// JobView returns a job of st as GetJob shows it, without what only sessions and
// history know; nil if st has no such job. The caller holds the machine's lock.
func JobView(st *fsm.State, id fsm.JobID) *dtaskv1.Job {
	job, ok := st.Job(id)
	if !ok {
		return nil
	}
	return show(sight{job: job}, 0)
}

// DeadLetterView returns a task of st as ListDeadLetters shows it, with payload and
// history; nil if st has no such job. The caller holds the machine's lock.
func DeadLetterView(st *fsm.State, ref fsm.TaskRef) *dtaskv1.DeadLetter {
	job, ok := st.Job(ref.Job)
	if !ok {
		return nil
	}
	task, _ := st.Task(ref)
	reader := taskReader{st: st, job: job}
	return reader.letter(ref, task, st.TaskType(ref), true)
}

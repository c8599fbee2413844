package api

import (
	"context"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// A selection is some tasks of a job, or all of them, that the leader is to change.
type selection struct {
	change

	job   fsm.Job
	tasks []uint32 // ascending; empty = all
}

// selectTasks looks up the job of a change, which must have the required version, and
// the tasks that the request names. The version comes first: it decides which tasks of
// an array have failed.
func (j *jobs) selectTasks(ctx context.Context, c change, names []string) (*selection, error) {
	s := &selection{change: c}
	var ok bool
	if c.foreign {
		return nil, j.missingJob(c.id)
	}
	if s.job, ok = c.st.Job(c.id); !ok {
		return nil, j.explainMissing(c.id, &sequencer.RejectedError{Reason: fsm.JobNotFound})
	}
	if v := c.required.IfVersion; v != 0 && v != uint64(s.job.Version) {
		return nil, versionMismatch(&s.job, &c.required)
	}
	var err error
	s.tasks, err = s.find(ctx, names)
	return s, err
}

func (s *selection) ref(i uint32) fsm.TaskRef { return fsm.TaskRef{Job: s.job.ID, Index: i} }

func (s *selection) task(i uint32) fsm.Task {
	t, _ := s.st.Task(s.ref(i))
	return t
}

// find finds tasks by the ids that the user gave them, in one pass over the job.
// Indexes are ascending and unique.
func (s *selection) find(ctx context.Context, names []string) ([]uint32, error) {
	if len(names) == 0 {
		return nil, nil
	}
	missing := make(map[string]bool, len(names))
	for _, name := range names {
		missing[name] = true
	}
	found := s.findArrays(missing)
	for i := range s.job.Total {
		if len(missing) == 0 {
			break
		}
		if err := ended(ctx, i); err != nil {
			return nil, err
		}
		if name := s.st.Name(s.ref(i)); missing[name] {
			delete(missing, name)
			found = append(found, i)
		}
	}
	for _, name := range names {
		if !missing[name] {
			continue
		}
		ref, ok := s.st.FindTask(s.job.ID, name) // run[2] means the chunk run[1-4]
		if !ok {
			return nil, taskNotFound(s.st, s.job.ID, name)
		}
		found = append(found, ref.Index)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// findArrays returns the tasks that ended without completing of the arrays that are
// named, and deletes the names of arrays that have any.
func (s *selection) findArrays(names map[string]bool) []uint32 {
	var found []uint32
	for _, a := range s.st.Arrays(s.job.ID) {
		if !names[a.Name] {
			continue
		}
		for i := a.First; i < a.First+a.Count; i++ {
			if failed(s.task(i)) {
				delete(names, a.Name)
				found = append(found, i)
			}
		}
	}
	return found
}

// failed reports whether a task ended without completing.
func failed(t fsm.Task) bool { return t.State.Terminal() && t.State != fsm.Completed }

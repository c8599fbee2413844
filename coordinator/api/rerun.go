package api

import (
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// rerun gives a job the run of the one that it is a rerun of. Callers only name that job, and
// so can't claim a run. The schedule does not know of the new job.
func (u *upload) rerun(h *dtaskv1.JobHeader, source string) error {
	id, err := jobID(source)
	if err != nil {
		return err
	}
	header, err := u.headerOf(id)
	switch {
	case err != nil:
		return err
	case namespaceOf(header) != u.scope:
		return invalid("rerun_of: job %d is in another namespace: submit its rerun to %s", id, quote(namespaceOf(header)))
	case header.GetRun() == nil:
		return invalid("rerun_of: job %d is not the run of a schedule: leave it out", id)
	}
	h.Run = proto.CloneOf(header.GetRun())
	h.Run.Manual, h.Run.RerunOf = true, uint64(id)
	return nil
}

// headerOf returns the header of a job of the state or the history. One that the caller may not
// know of does not exist.
func (u *upload) headerOf(id fsm.JobID) (header *dtaskv1.JobHeader, err error) {
	u.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if job, ok := st.Job(id); ok {
			header = job.Header
		}
	})
	if header == nil {
		head, _, err := u.archivedJob(id)
		if err != nil {
			return nil, err
		}
		header = head.Header // nil if it is unknown
	}
	if header == nil || !sees(u.caller, header) {
		return nil, u.missingJob(id)
	}
	return header, nil
}

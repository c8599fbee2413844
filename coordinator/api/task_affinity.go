package api

import (
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// keyWorker returns the name of the worker that the affinity of a task chooses now, as far as
// the replicated state has the workers: the leader leaves out those that are up and not
// connected, too. It is empty without an affinity or such a worker. The tasks of one policy
// have one worker, which is chosen once.
func (r *taskReader) keyWorker(ref fsm.TaskRef) string {
	number, ok := r.st.PolicyNumber(ref)
	if !ok || r.job.Policy(number).GetAffinity() == "" {
		return ""
	}
	name, known := r.homes[number]
	if !known {
		name = chooseKeyWorker(r.st, r.job.Header, r.job.Policy(number))
		if r.homes == nil {
			r.homes = make(map[uint32]string)
		}
		r.homes[number] = name
	}
	return name
}

func chooseKeyWorker(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy) string {
	required := requirements(st, h, p)
	var ids []fsm.WorkerID
	for w := range st.Workers() {
		if w.State == fsm.WorkerUp && w.Slots > 0 && !w.Drains() && meetsAll(w, required) {
			ids = append(ids, w.ID)
		}
	}
	if w := st.Worker(sequencer.ChooseKeyWorker(h, p.GetAffinity(), ids)); w != nil {
		return w.Name
	}
	return ""
}

func meetsAll(w *fsm.Worker, required []requirement) bool {
	for _, r := range required {
		if !r.met(w) {
			return false
		}
	}
	return true
}

// showSpilled shows that the leader assigned a task to another worker than that of its key.
func (r *taskReader) showSpilled(t *dtaskv1.Task, from sequencer.Affinity) {
	if w := r.st.Worker(from.Worker); w != nil {
		t.SpilledFrom, t.SpilledPermille = w.Name, uint32(from.Permille) //nolint:gosec // far below 2^32
	}
}

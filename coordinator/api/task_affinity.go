package api

import (
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// keyWorker returns the name of the worker that the affinity of a task chooses now, as far as
// the replicated state has the workers: the leader leaves out those that are up and not
// connected, too. It is empty without an affinity or such a worker. Of several alternatives it
// is that of the one which the task takes or, if it is pending, of the first one that any
// worker could run.
func (r *taskReader) keyWorker(t *fsm.Task) (name string) {
	p := r.job.Policy(t.Policy)
	if p.GetAffinity() == "" {
		return ""
	}
	first, last := t.Alternative, t.Alternative
	if t.State == fsm.Pending {
		first, last = 0, uint8(len(p.GetAlternatives())) //nolint:gosec // at most fsm.MaxAlternatives
	}
	for n := first; n <= last && name == ""; n++ {
		name = r.home(home{t.Policy, n}, p)
	}
	return name
}

// A home is what tasks have in common that have one worker of a key.
type home struct {
	policy      uint32 // its number
	alternative uint8
}

// home returns the worker of a key, which is chosen once.
func (r *taskReader) home(at home, p *dtaskv1.TaskPolicy) string {
	name, known := r.homes[at]
	if !known {
		name = chooseKeyWorker(r.st, r.job.Header, p, resourcesTaken(p, at.alternative))
		if r.homes == nil {
			r.homes = make(map[home]string)
		}
		r.homes[at] = name
	}
	return name
}

func chooseKeyWorker(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy, resources map[string]int64) string {
	required := append(requirements(st, h, p), resourceRequirements(resources)...)
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

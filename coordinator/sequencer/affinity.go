package sequencer

import (
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// Affinity is the worker that the affinity of a task chooses.
type Affinity struct {
	Worker fsm.WorkerID // 0: the task has no affinity, or no worker that accepts tasks could run it
	// Permille is what runs on the worker and waits for it, in thousandths of its slots.
	Permille uint64
	// Busy: it can't start the task now.
	Busy bool
	// Until is the Unix ms until which the task waits for it at most while others are idle;
	// 0 = it may start anywhere.
	Until int64
}

func showAffinity(k scheduler.KeyWorker) Affinity {
	return Affinity{Worker: fsm.WorkerID(k.Worker), Permille: k.Load, Busy: k.Busy}
}

// noteSpilled notes that an attempt was assigned to another worker than that of its key, and
// reports whether it was.
func (d *dispatcher) noteSpilled(a fsm.AttemptRef, to *scheduler.Assignment) bool {
	k := d.sched.KeyWorker(to.Class)
	if k.Worker == 0 || k.Worker == to.Worker {
		return false
	}
	d.workers.running.update(a, func(o *Observation) { o.Spilled = showAffinity(k) })
	return true
}

// ChooseKeyWorker returns the worker that an affinity chooses for a task of a job among those
// that accept tasks and could run it if they were idle; 0 without any.
func ChooseKeyWorker(h *dtaskv1.JobHeader, affinity string, ids []fsm.WorkerID) fsm.WorkerID {
	list := make([]scheduler.WorkerID, len(ids))
	for i, id := range ids {
		list[i] = scheduler.WorkerID(id)
	}
	return fsm.WorkerID(scheduler.ChooseKeyWorker(h.GetNamespace(), affinity, list))
}

package sequencer

import (
	"github.com/dtask/dtask/fsm"
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

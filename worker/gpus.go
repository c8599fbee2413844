package worker

import (
	"github.com/dtask/dtask/worker/gpu"
)

// takeGPUs gives an attempt the GPUs that its task requests, and returns a function that gives
// them back. It may wait for other attempts of this worker; see [gpu.Pool].
func (w *Worker) takeGPUs(a *attempt) (giveBack func(), err error) {
	a.slot.gpus = nil
	amount := a.policy.GetResources()[gpu.Resource]
	if amount <= 0 || len(w.devices.IDs) == 0 {
		return func() {}, nil
	}
	waited := false
	grant, err := w.gpus.Take(a.ctx, amount, func() {
		waited = true
		w.attempts.progress(a, 0, "waits for a GPU of this worker")
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says everything
	}
	if waited {
		w.attempts.progress(a, 0, "")
	}
	a.slot.gpus = grant.IDs
	return grant.Release, nil
}

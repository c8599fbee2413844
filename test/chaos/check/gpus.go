package check

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// wholeGPU is a whole GPU in thousandths.
const wholeGPU = 1000

// gpus checks that each execution got as many GPUs as its task requests, and that at no time the
// executions of one process of a worker take more of a GPU than the whole: a whole one belongs to
// one execution alone.
func (a *account) gpus() {
	for _, f := range a.finals {
		p := a.plans[f.Name]
		if p == nil {
			continue
		}
		for _, t := range p.Tasks {
			at := place{f.ID, t.ID}
			for _, r := range a.runs[at] {
				if amount := int64(t.GPUs * wholeGPU); t.GPUs > 0 && (r.GPUAmount != amount || int64(len(r.GPUs)) != (amount+wholeGPU-1)/wholeGPU) {
					a.faults.add(Unexpected, at.String(), "it requests %g GPUs and got %v: %s", t.GPUs, r.GPUs, show([]ledger.Run{r}))
				}
			}
		}
	}
	for _, runs := range a.onGPUs() {
		var running []ledger.Run // when the next one starts
		for _, r := range runs {
			running = append(slices.DeleteFunc(running, func(x ledger.Run) bool { return x.End <= r.Start }), r)
			for _, id := range r.GPUs {
				taken := int64(0)
				for i := range running {
					taken += shareOf(&running[i], id)
				}
				if taken > wholeGPU {
					a.faults.add(Unexpected, "GPU "+id+" of "+r.Worker, "its executions take %d thousandths of it: %s", taken, showHolders(running))
				}
			}
		}
	}
}

// shareOf returns how much an execution takes of a GPU, in thousandths.
func shareOf(r *ledger.Run, id string) int64 {
	switch i := slices.Index(r.GPUs, id); {
	case i < 0:
		return 0
	case i == len(r.GPUs)-1 && r.GPUAmount%wholeGPU != 0:
		return r.GPUAmount % wholeGPU
	}
	return wholeGPU
}

// A workerProcess is one process of a worker. The next one of the worker has all its GPUs again:
// what the handlers of a process execute ends with it.
type workerProcess struct {
	worker string
	pid    int
}

// onGPUs returns the executions with GPUs of each process, in order of their starts. One without
// an end was killed with its process: how long it lasted is unknown.
func (a *account) onGPUs() map[workerProcess][]ledger.Run {
	all := make(map[workerProcess][]ledger.Run)
	for _, runs := range a.runs {
		for _, r := range runs {
			if len(r.GPUs) > 0 && r.Ended() {
				p := workerProcess{r.Worker, r.Pid}
				all[p] = append(all[p], r)
			}
		}
	}
	for _, runs := range all {
		slices.SortFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Start, y.Start) })
	}
	return all
}

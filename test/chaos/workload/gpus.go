package workload

import (
	"math/rand/v2"

	"github.com/dtask/dtask/test/chaos/check"
)

// GPUs returns those that worker number n, from 1, must offer: every second one has two. They
// don't exist, and no task looks for them.
func GPUs(n int) string { return []string{"none", "0,1"}[n%2] }

// gpuShapes are the jobs whose tasks take GPUs. The slow ones still run when their worker has been
// cut off, marked down and has returned: the leader may assign its GPUs meanwhile.
func gpuShapes() []shape {
	return []shape{
		{name: "gpus", weight: 2, make: onGPUs},
		{name: "slow-gpus", weight: 1, make: onGPUs, slow: true},
	}
}

// onGPUs are tasks that take whole GPUs, parts, or both.
func onGPUs(random *rand.Rand) []check.PlannedTask {
	tasks := numbered(3 + random.IntN(5))
	for i := range tasks {
		tasks[i].GPUs = []float64{1, 1, 0.5, 0.5, 1.5, 2}[random.IntN(6)]
	}
	return tasks
}

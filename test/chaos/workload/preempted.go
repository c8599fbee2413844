package workload

import (
	"math/rand/v2"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
)

// crampedQueue runs crampedRunning tasks at the same time during the whole run. Its users keep it
// full with slow preemptible tasks of low priority, and submit urgent ones, which take their places
// after a second.
const (
	crampedQueue   = "cramped"
	crampedRunning = 2
)

// crampedUsers returns the shapes of the users of the queue.
//
// Preemptible tasks have no retries: one that ends for an urgent task and is counted as failed is
// dead, and the checker wants it completed. The ledger has the stopped attempt with an exit code
// other than 0, so that the checker accepts the next one.
func crampedUsers() [][]shape {
	preemptible := []shape{{name: "preempted", weight: 1, queue: crampedQueue, slow: true, priority: dtaskv1.Priority_PRIORITY_LOW, preemptible: true, make: func(random *rand.Rand) []check.PlannedTask {
		tasks := numbered(2 + random.IntN(4))
		for i := range tasks {
			tasks[i].Retries = 0
		}
		return tasks
	}}}
	urgent := []shape{{name: "urgent", weight: 1, queue: crampedQueue, priority: dtaskv1.Priority_PRIORITY_URGENT, make: func(random *rand.Rand) []check.PlannedTask {
		return numbered(1 + random.IntN(3))
	}}}
	return [][]shape{preemptible, preemptible, urgent}
}

// prioritize sets the priority of a job, and whether its tasks are preemptible.
func prioritize(job *dtaskv1.JobSpec, s shape) {
	if s.priority != 0 {
		job.GetHeader().Priority = s.priority
	}
	for _, p := range job.GetHeader().GetPolicies() {
		p.Preemptible = s.preemptible
	}
}

// preemptedError is the error of an attempt that ended for an urgent task.
const preemptedError = "preempted: an urgent task took its place"

// preemptions counts the attempts of a task that ended for urgent ones. The metric would count
// those of one leader only, until it is killed.
func preemptions(t *dtaskv1.Task) (n int) {
	for _, a := range t.GetHistory() {
		if a.GetError() == preemptedError {
			n++
		}
	}
	return n
}

package cli

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A fakeBench is the part of a fakeLeader that bench uses. The leader's lock guards
// it.
type fakeBench struct {
	noWorker  bool          // all workers are down
	stuck     int           // jobs of type "stuck" before allStuck is closed
	allStuck  chan struct{} // nil = unused
	cancelled []string      // job IDs
}

// bench sets the times of a job of bench: tasks start 3 ms after the submission and
// take 2 ms. Tasks of type "stuck" never finish. The caller holds the lock.
func (f *fakeLeader) bench(j *fakeJob, m *dtaskv1.JobPart) {
	if j.job.GetName() != "bench" {
		return
	}
	j.job.Labels = m.GetHeader().GetLabels()
	for _, t := range j.tasks {
		t.StartedAt, t.CompletedAt = ago(10*time.Second-3*time.Millisecond), ago(10*time.Second-5*time.Millisecond)
	}
	if m.GetHeader().GetPolicies()[0].GetType() != "stuck" {
		return
	}
	j.job.State, j.job.TasksCompleted, j.job.CompletedAt = dtaskv1.JobState_JOB_STATE_RUNNING, 0, 0
	if f.stuck--; f.stuck == 0 {
		close(f.allStuck)
	}
}

func (f *fakeLeader) hasNoWorker() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noWorker
}

func (f *fakeLeader) noteCancelled(job string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, job)
}

func hasLabels(j *dtaskv1.Job, want map[string]string) bool {
	for name, value := range want {
		if j.GetLabels()[name] != value {
			return false
		}
	}
	return true
}

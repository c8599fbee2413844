package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxSampledJobs is how many jobs are sampled; each costs two reads.
const maxSampledJobs = 200

// A sample holds the latencies of the sampled tasks.
type sample struct {
	tasks          int
	readyToRunning []time.Duration
	endToEnd       []time.Duration
}

// Report reads the counters of the coordinators and the times of a sample of the
// tasks, and returns the report of the run.
func (l *Load) Report(ctx context.Context) (document.Bench, error) {
	after, err := l.client.Stats(ctx)
	if err != nil {
		after = nil // the report is useful without counters
	}
	s, err := l.sample(ctx)
	if err != nil {
		return document.Bench{}, err
	}
	seconds, tasks := max(l.totalTime.Seconds(), 1e-9), int(l.sent.Load())
	r := document.Bench{
		Tasks: tasks, Jobs: len(l.jobs), Shape: string(l.cfg.Shape), PayloadSize: l.cfg.PayloadSize, Rate: l.cfg.Rate,
		SubmitSeconds: round3(l.submitTime.Seconds()), TotalSeconds: round3(l.totalTime.Seconds()),
		TasksPerSecond: round3(float64(tasks) / seconds), JobsPerSecond: round3(float64(len(l.jobs)) / seconds),
		TasksFailed: l.failed, Retries: l.retries,
		Submit: distribution(l.latencies), ReadyToRunning: distribution(s.readyToRunning), EndToEnd: distribution(s.endToEnd),
		Sampled: s.tasks,
	}
	addCounters(&r, l.before, after)
	return r, nil
}

// addCounters adds the growth of the counters of all replicas.
func addCounters(r *document.Bench, before, after []client.ReplicaStats) {
	if len(before) == 0 || len(after) == 0 {
		return
	}
	var entries, operations, logBytes, syncs, leaderChanges uint64
	for _, now := range after {
		i := slices.IndexFunc(before, func(then client.ReplicaStats) bool { return then.Address == now.Address })
		if i < 0 {
			continue
		}
		a, b := before[i].Stats, now.Stats
		entries += growth(a.GetEntries(), b.GetEntries())
		operations += growth(a.GetOperations(), b.GetOperations())
		logBytes += growth(a.GetBytes(), b.GetBytes())
		syncs += growth(a.GetSyncs(), b.GetSyncs())
		leaderChanges = max(leaderChanges, growth(a.GetLeaderChanges(), b.GetLeaderChanges())) // all replicas count the same changes
	}
	r.Entries, r.Operations, r.LogBytes, r.Syncs, r.LeaderChanges = &entries, &operations, &logBytes, &syncs, &leaderChanges
	if entries > 0 {
		r.PerEntry = new(round3(float64(operations) / float64(entries)))
	}
}

// growth returns by how much a counter grew. A smaller counter restarted at 0 with
// its process.
func growth(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

// sample reads the tasks of some jobs, evenly over the run, from any replica. It
// skips jobs that have expired or that the replica doesn't know yet.
func (l *Load) sample(ctx context.Context) (sample, error) {
	var s sample
	if l.cfg.Sample == 0 {
		return s, nil
	}
	total := 0
	for _, j := range l.jobs {
		total += j.tasks
	}
	stride := max(1, (total+l.cfg.Sample-1)/l.cfg.Sample, (len(l.jobs)+maxSampledJobs-1)/maxSampledJobs)
	for i := 0; i < len(l.jobs) && s.tasks < l.cfg.Sample; i += stride {
		if err := l.sampleJob(ctx, l.jobs[i], &s); err != nil && !errors.Is(err, client.ErrNotFound) {
			return s, err
		}
	}
	return s, nil
}

func (l *Load) sampleJob(ctx context.Context, j job, s *sample) error {
	info, err := l.client.Job(ctx, j.ID, client.ReadOptions{Stale: true})
	if err != nil {
		return err
	}
	completedAt := make([]int64, 0, j.tasks) // by index
	for task, err := range l.client.Tasks(ctx, j.ID, client.TaskFilter{Stale: true}) {
		if err != nil {
			return err
		}
		ready := info.GetSubmittedAt()
		for _, d := range l.cfg.Shape.Dependencies(int(task.GetIndex()), l.cfg.Width) {
			if int(d) < len(completedAt) {
				ready = max(ready, completedAt[d])
			}
		}
		completedAt = append(completedAt, task.GetCompletedAt())
		if task.GetState() != dtaskv1.TaskState_TASK_STATE_COMPLETED && task.GetState() != dtaskv1.TaskState_TASK_STATE_AGGREGATED {
			continue
		}
		s.tasks++
		s.readyToRunning = append(s.readyToRunning, elapsed(ready, task.GetStartedAt()))
		s.endToEnd = append(s.endToEnd, elapsed(info.GetSubmittedAt(), task.GetCompletedAt()))
		if s.tasks >= l.cfg.Sample {
			break
		}
	}
	return nil
}

// elapsed returns the time between two Unix times in milliseconds. It is never
// negative, although a start time is rounded.
func elapsed(from, to int64) time.Duration {
	return time.Duration(max(0, to-from)) * time.Millisecond
}

// distribution returns percentiles by nearest rank; nil without samples.
func distribution(samples []time.Duration) *document.Distribution {
	if len(samples) == 0 {
		return nil
	}
	slices.Sort(samples)
	at := func(share float64) float64 {
		rank := int(math.Ceil(share*float64(len(samples)))) - 1
		return round3(float64(samples[max(rank, 0)]) / float64(time.Millisecond))
	}
	return &document.Distribution{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

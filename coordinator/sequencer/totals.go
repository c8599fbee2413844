package sequencer

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/scheduler"
)

// Totals are the counters and distributions of a process, over all terms. Safe
// for concurrent use.
type Totals struct {
	Entries, Operations, Bytes         atomic.Uint64
	Assignments, Completions, Failures atomic.Uint64
	Requeues, WorkersDown, Submissions atomic.Uint64
	Losses                             atomic.Uint64 // attempts requeued because their worker went down while it ran them
	StealRequests, Steals              atomic.Uint64 // attempts that workers were asked to release; that they released
	Preemptions                        atomic.Uint64 // attempts that workers were asked to end for urgent tasks
	Reuses                             atomic.Uint64 // tasks that ended with a cached result
	NotificationsDropped               atomic.Uint64 // pushed out of a full queue
	ScheduledRuns                      atomic.Uint64 // ticks of schedules that started a job
	JobsExpired                        atomic.Uint64 // jobs cancelled because no task started in time
	TicksSkipped, TicksMissed          atomic.Uint64 // ticks skipped because of an open run; ticks that were missed and don't run

	// Wait is the time from ready to sent to a worker, sampled under load. Run
	// is the duration of attempts that succeeded.
	Wait, Run Distribution
	// FireDelay is how long after their start, jitter included, ticks were decided to run.
	FireDelay Distribution

	// Depth is the number of ready tasks by priority, index scheduler.Priority.
	Depth [scheduler.Urgent + 1]atomic.Int64
	// Unplaceable is the number of those that no worker could run, even if all were idle.
	Unplaceable atomic.Int64
	// OldestWait is how long the oldest ready task has been ready, in nanoseconds.
	OldestWait atomic.Int64
	// Queues is the load of each queue, of some seconds ago; nil: unknown.
	Queues atomic.Pointer[map[string]QueueLoad]
	// Limits is the load of each named limit and key, of some seconds ago; nil: unknown.
	Limits atomic.Pointer[[]scheduler.LimitLoad]
	// Failed has the failed attempts by task type and reason.
	Failed FailedAttempts

	// Workers is the number of workers with a session, Held that of attempts on
	// workers, Orphaned that of those on workers without a session.
	Workers, Held, Orphaned atomic.Int64
}

// NewTotals returns totals that are all zero.
func NewTotals() *Totals { return &Totals{} }

// Stats returns the counters.
func (t *Totals) Stats() Stats {
	return Stats{
		Entries: t.Entries.Load(), Operations: t.Operations.Load(), Bytes: t.Bytes.Load(),
		Assignments: t.Assignments.Load(), Completions: t.Completions.Load(), Failures: t.Failures.Load(),
		StealRequests: t.StealRequests.Load(), Steals: t.Steals.Load(),
		Requeues: t.Requeues.Load(), Losses: t.Losses.Load(), WorkersDown: t.WorkersDown.Load(), Submissions: t.Submissions.Load(),
	}
}

// Distribution counts durations in buckets whose width is an eighth of their
// value, from a microsecond to hours: quantiles are exact within 13 %. The idea
// is from HdrHistogram (G. Tene), with three bits of precision.
type Distribution struct {
	buckets [distributionSize]atomic.Uint64
	sum     atomic.Int64 // ns
}

const (
	subBits          = 3
	distributionSize = 64 << subBits
)

func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0)) //nolint:gosec // not negative
	if us < 1<<subBits {
		return int(us) //nolint:gosec // small
	}
	e := bits.Len64(us) - 1 - subBits
	return (e+1)<<subBits + int(us>>e)&(1<<subBits-1) //nolint:gosec // small
}

// upper returns the upper bound of a bucket.
func upper(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i+1) * time.Microsecond
	}
	e := i>>subBits - 1
	return time.Duration((i&(1<<subBits-1)|1<<subBits)+1) << e * time.Microsecond
}

// Observe counts a duration.
func (d *Distribution) Observe(x time.Duration) {
	d.buckets[bucketOf(x)].Add(1)
	d.sum.Add(int64(x))
}

// Counts is a snapshot of a distribution.
type Counts struct {
	N       uint64
	Sum     time.Duration
	buckets [distributionSize]uint64
}

// Counts returns a snapshot.
func (d *Distribution) Counts() Counts {
	c := Counts{Sum: time.Duration(d.sum.Load())}
	for i := range d.buckets {
		c.buckets[i] = d.buckets[i].Load()
		c.N += c.buckets[i]
	}
	return c
}

// Since returns what was counted after an earlier snapshot.
func (c *Counts) Since(before *Counts) Counts {
	r := Counts{N: c.N - before.N, Sum: c.Sum - before.Sum}
	for i := range &c.buckets {
		r.buckets[i] = c.buckets[i] - before.buckets[i]
	}
	return r
}

// Quantile returns a duration that the given permille of all durations don't
// exceed, at most 13 % too high; 0 if the snapshot is empty.
func (c *Counts) Quantile(permille uint64) time.Duration {
	if c.N == 0 {
		return 0
	}
	want := (c.N*permille + 999) / 1000
	seen := uint64(0)
	for i, n := range &c.buckets {
		seen += n
		if seen >= want {
			return upper(i)
		}
	}
	return upper(distributionSize - 1)
}

// Cumulative returns the number of durations at or below each bound, for
// metrics.
func (c *Counts) Cumulative(bounds []time.Duration) []uint64 {
	out := make([]uint64, len(bounds))
	for i, n := range &c.buckets {
		if n == 0 {
			continue
		}
		for k := range bounds {
			if upper(i) <= bounds[k] {
				out[k] += n
			}
		}
	}
	return out
}

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// observeEvery is how often an Observer asks each replica.
const observeEvery = 5 * time.Millisecond

// A Completion is a moment at which an Observer saw more of a job's tasks
// completed than before.
type Completion struct {
	At        time.Time
	Completed int
	Replica   string // who showed it first
}

// An Observer watches one job at every coordinator by stale reads, every few
// milliseconds, so that it sees completions as soon as any replica has applied
// them, also while there is no leader and nobody else can be asked.
type Observer struct {
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu   sync.Mutex // guards seen
	seen []Completion
	more chan struct{} // closed and replaced at each new completion
}

// Observe begins to watch a job; Stop ends it.
func (c *Cluster) Observe(ctx context.Context, job string) *Observer {
	ctx, cancel := context.WithCancel(ctx)
	o := &Observer{cancel: cancel, more: make(chan struct{})}
	for _, n := range c.coordinators {
		o.group.Go(func() { o.watch(ctx, n, job) })
	}
	return o
}

// Stop ends the watching, and returns once all that it started has ended.
func (o *Observer) Stop() {
	o.cancel()
	o.group.Wait()
}

func (o *Observer) watch(ctx context.Context, n *Coordinator, job string) {
	conn, err := n.Dial()
	if err != nil {
		return // the address is one of ours; an observer that sees nothing shows
	}
	defer func() { _ = conn.Close() }()
	jobs := dtaskv1.NewJobServiceClient(conn)
	request := &dtaskv1.GetJobRequest{Id: job, Consistency: dtaskv1.Consistency_CONSISTENCY_STALE}
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		got, err := jobs.GetJob(one, request)
		cancel()
		if err != nil {
			conn.ResetConnectBackoff() // a replica that comes back is asked at once
			continue
		}
		o.add(Completion{At: time.Now(), Completed: int(got.GetTasksCompleted()), Replica: n.Name})
	}
}

func (o *Observer) add(c Completion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) > 0 && o.seen[len(o.seen)-1].Completed >= c.Completed || c.Completed == 0 {
		return
	}
	o.seen = append(o.seen, c)
	close(o.more)
	o.more = make(chan struct{})
}

// Seen are all completions so far, in order.
func (o *Observer) Seen() []Completion {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// last is the newest completion, and a channel that closes at the next.
func (o *Observer) last() (Completion, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) == 0 {
		return Completion{}, o.more
	}
	return o.seen[len(o.seen)-1], o.more
}

// Await returns once at least this many tasks are completed.
func (o *Observer) Await(ctx context.Context, completed int) (Completion, error) {
	for {
		last, more := o.last()
		if last.Completed >= completed {
			return last, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for %d completions (%d seen): %w", completed, last.Completed, context.Cause(ctx))
		}
	}
}

// A Gap is what the loss of a leader did to the flow of completions.
type Gap struct {
	// Longest is the longest time without a completion that was seen around
	// the loss.
	Longest time.Duration
	// Back is from the loss until that time was over: work flows again. What the
	// lost leader had accepted may have become visible before.
	Back time.Duration
}

// settling is how long after the first completion behind a loss a time without
// one may begin and still belong to the loss.
const settling = time.Second

// GapAround finds the gap around a loss. None is found if no
// completion was seen after it.
func GapAround(seen []Completion, loss time.Time) (Gap, bool) {
	after := slices.IndexFunc(seen, func(c Completion) bool { return c.At.After(loss) })
	if after < 0 {
		return Gap{}, false
	}
	gap := Gap{Back: seen[after].At.Sub(loss)}
	gap.Longest = gap.Back
	if after > 0 {
		gap.Longest = seen[after].At.Sub(seen[after-1].At)
	}
	for i := after + 1; i < len(seen) && seen[i-1].At.Sub(seen[after].At) < settling; i++ {
		if length := seen[i].At.Sub(seen[i-1].At); length > gap.Longest {
			gap = Gap{Longest: length, Back: seen[i].At.Sub(loss)}
		}
	}
	return gap, true
}

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// leaveLimit bounds the time until workers and clients leave a leader that hangs.
const leaveLimit = 2500 * time.Millisecond

// A writer submits small jobs one after another and records the acknowledged ones.
type writer struct {
	acked atomic.Uint64 // highest acknowledged job

	mu      sync.Mutex // guards longest
	longest time.Duration
}

// run submits until ctx is done.
func (w *writer) run(ctx context.Context, c *cluster.Cluster) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "acknowledged"})
	if err != nil {
		return fmt.Errorf("building job: %w", err)
	}
	for last := time.Now(); ctx.Err() == nil; {
		got, err := cl.Submit(ctx, job, client.SubmitOptions{})
		if ctx.Err() != nil {
			return nil // ctx is done
		} else if err != nil {
			return fmt.Errorf("submitting: %w", err)
		}
		id, err := strconv.ParseUint(got.ID, 10, 64)
		if err != nil {
			return fmt.Errorf("reading job id: %w", err)
		}
		w.acked.Store(max(w.acked.Load(), id))
		w.mu.Lock()
		w.longest = max(w.longest, time.Since(last))
		w.mu.Unlock()
		last = time.Now()
	}
	return nil
}

// gap returns the longest time between two acknowledgments since the last call.
func (w *writer) gap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longest
	w.longest = 0
	return longest
}

// A reader reads repeatedly at one replica, and reports answers that are older than
// what was acknowledged before the request.
type reader struct {
	answers, refusals atomic.Int64
	old               atomic.Pointer[string]
}

func (r *reader) run(ctx context.Context, n *cluster.Coordinator, w *writer) error {
	conn, err := n.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	jobs := dtaskv1.NewJobServiceClient(conn)
	for ctx.Err() == nil {
		want := w.acked.Load()
		got, err := jobs.ListJobs(ctx, &dtaskv1.ListJobsRequest{Limit: 1})
		if err != nil {
			r.refusals.Add(1)
			_ = cluster.Pause(ctx, time.Millisecond) // or the end
			continue
		}
		r.answers.Add(1)
		seen := uint64(0)
		if len(got.GetJobs()) > 0 {
			seen, _ = strconv.ParseUint(got.GetJobs()[0].GetId(), 10, 64)
		}
		if seen < want {
			text := fmt.Sprintf("job %d was acknowledged, but %s answered with job %d as the last", want, n.Name, seen)
			r.old.CompareAndSwap(nil, &text)
		}
	}
	return nil
}

// readAtLeader starts readers at the leader, and returns when they have answers. A leader that
// another one replaces meanwhile only refuses: then the next one is asked.
func readAtLeader(t *testing.T, c *cluster.Cluster, w *writer) (leader *cluster.Coordinator, r *reader, stop func()) {
	t.Helper()
	for range 5 {
		leader, r = clustertest.Leader(t, c), &reader{}
		reading, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 4 { // several requests are in progress when it stops
			group.Go(func() {
				if err := r.run(reading, leader, w); err != nil {
					t.Error(err)
				}
			})
		}
		stop = func() {
			cancel()
			group.Wait()
		}
		t.Cleanup(stop)
		clustertest.Must(t, cluster.Until(t.Context(), "the leader answers", guard, func(context.Context) error {
			if r.answers.Load() < 100 && r.refusals.Load() < 100 {
				return cluster.ErrNotYet
			}
			return nil
		}))
		if r.answers.Load() >= 100 {
			return leader, r, stop
		}
		stop()
		if old := r.old.Load(); old != nil {
			t.Error(*old)
		}
		t.Logf("%s does not lead any more", leader.Name)
		clustertest.Must(t, cluster.Pause(t.Context(), time.Second)) // an election
	}
	t.Fatal("no leader stayed until it had answered")
	return nil, nil, nil
}

func TestAStoppedLeaderNeverAnswersWithOlderState(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	w := &writer{}
	errs := make(chan error, 3)
	group.Go(func() { errs <- w.run(ctx, c) })

	for range 2 {
		leader, r, stop := readAtLeader(t, c, w)
		stopped, before := time.Now(), w.acked.Load()
		clustertest.Must(t, leader.Pause())
		next, err := c.At(c.Followers(leader)...).Status(ctx)
		for err == nil && (next.Leader == "" || next.Leader == leader.Name) && time.Since(stopped) < guard {
			next, err = c.At(c.Followers(leader)...).Status(ctx)
		}
		clustertest.Must(t, err)
		clustertest.Must(t, cluster.Pause(ctx, 3*time.Second-time.Since(stopped)))
		clustertest.Must(t, cluster.Until(ctx, "the next leader acknowledges jobs", guard, func(context.Context) error {
			if w.acked.Load() < before+10 { // one may be from the stopped leader
				return cluster.ErrNotYet
			}
			return nil
		}))
		during, answers, refusals := w.acked.Load()-before, r.answers.Load(), r.refusals.Load()
		clustertest.Must(t, leader.Resume())
		clustertest.Must(t, cluster.Until(ctx, "it steps down", guard, func(context.Context) error {
			if r.refusals.Load() < refusals+100 {
				return cluster.ErrNotYet
			}
			return nil
		}))
		stop()
		if old := r.old.Load(); old != nil {
			t.Error(*old)
		}
		t.Logf("%d jobs acknowledged while %s was stopped; it gave %d answers before and %d after", during, leader.Name, answers, r.answers.Load()-answers)
	}
	cancel()
	group.Wait()
	clustertest.Must(t, <-errs)
}

// leaveTries is how often a leader is stopped: on a machine that is busy all the time everything
// is late, without a stall. Workers or clients that do not leave are late each time.
const leaveTries = 3

func TestWorkersAndClientsLeaveAHungLeader(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	w := &writer{}
	errs := make(chan error, 1)
	group.Go(func() { errs <- w.run(ctx, c) })
	late := ""
	for range leaveTries {
		if late = leaveHungLeader(t, c, w); late == "" {
			break
		}
		t.Log(late)
	}
	if late != "" {
		t.Error(late)
	}
	cancel()
	group.Wait()
	clustertest.Must(t, <-errs)
}

// leaveHungLeader stops the leader under a client that submits, and workers whose tasks end
// continuously.
func leaveHungLeader(t *testing.T, c *cluster.Cluster, w *writer) (late string) {
	t.Helper()
	ctx := t.Context()
	var tasks []cluster.TaskFile
	for i := range 4000 {
		tasks = append(tasks, cluster.Builtin(fmt.Sprintf("t%d", i), "sleep", "20ms"))
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("busy", tasks...))
	observer := c.Observe(ctx, id)
	defer observer.Stop()
	if _, err := observer.Await(ctx, 50); err != nil {
		t.Fatal(err)
	}
	leader := clustertest.Leader(t, c)
	stalls := clustertest.WatchStalls(t)
	w.gap()
	hung := time.Now()
	clustertest.Must(t, leader.Pause())
	seen := observer.Seen()
	limited, stop := context.WithTimeout(ctx, guard)
	defer stop()
	if _, err := observer.Await(limited, seen[len(seen)-1].Completed+200); err != nil {
		t.Fatal(err)
	}
	acked := w.acked.Load()
	clustertest.Must(t, cluster.Until(ctx, "the client has left the leader", guard, func(context.Context) error {
		if w.acked.Load() < acked+5 {
			return cluster.ErrNotYet
		}
		return nil
	}))
	ofWorkers, ofClients := longestAfter(observer.Seen(), hung), w.gap()
	t.Logf("hung leader: no completion for %v, no acknowledgment for %v", ofWorkers, ofClients)
	if limit := leaveLimit + slack + stalls.Lost(); ofWorkers > 2*limit || ofClients > 2*limit {
		t.Errorf("no completion for %v, no acknowledgment for %v; want both within %v", ofWorkers, ofClients, leaveLimit)
	} else if ofWorkers > limit || ofClients > limit {
		late = fmt.Sprintf("no completion for %v, no acknowledgment for %v; want both within %v", ofWorkers, ofClients, leaveLimit)
	}
	clustertest.Must(t, leader.Resume())
	if late != "" { // the next try needs a cluster that is whole and idle
		_ = c.Run(ctx, "cancel", id, "--yes") // or it has ended
		clustertest.Must(t, c.AwaitReady(ctx))
	}
	return late
}

func longestAfter(seen []cluster.Completion, loss time.Time) time.Duration {
	gap, found := cluster.GapAround(seen, loss)
	if !found {
		return guard
	}
	return gap.Longest
}

func TestAStoppingLeaderTransfersLeadership(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2})
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("through-a-hand-over", marks(c, 24, 500*time.Millisecond)...))
	awaitBegun(t, c, id, 4)
	leader := clustertest.Leader(t, c)
	told := time.Now()
	clustertest.Must(t, leader.Terminate())
	next, err := c.AwaitLeaderOtherThan(ctx, leader)
	clustertest.Must(t, err)
	t.Logf("%s leads %v after %s was asked to stop", next.Name, time.Since(told), leader.Name)
	if code, err := leader.Wait(ctx); err != nil || code != 0 {
		t.Errorf("got exit code %d, %v; want 0", code, err)
	}
	if !leader.LogHas("leadership transferred") {
		t.Error("its log does not report the transfer of leadership")
	}
	checkLedger(t, c, nil, judged(completed(t, c.Ctl, id), nil))
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

const (
	pendingPayload = 32 // bytes of each pending task
	// settled is for how long the heaps must not change: longer than a coordinator takes to notice
	// that it is idle and to collect its garbage. Until then, the heap is that of a collection while
	// it worked.
	settled = 8 * time.Second
	// settleLimit bounds the time until the heaps have settled.
	settleLimit = time.Minute
)

// memory measures the heap use of pending tasks at leader and followers, without
// workers.
func memory(ctx context.Context, b *bench) error {
	leader, followers, err := b.pendingMemory(ctx, pendingTasks{queues: []string{""}})
	if err != nil {
		return err
	}
	setting := b.pendingSetting()
	b.table.add("memory per pending task, leader", "B", setting, leader)
	b.table.add("memory per pending task, followers", "B", setting, followers...)
	return nil
}

func (b *bench) pendingSetting() string {
	return fmt.Sprintf("heap after / before %d tasks of %d B payload, beside a tenth as many, no worker", b.pending, pendingPayload)
}

// pendingTasks are tasks that wait in a new cluster.
type pendingTasks struct {
	cfg    cluster.Config
	queues []string // of a job each, of as many tasks; "": the default one
}

// pendingMemory returns by how many bytes the heaps of a new cluster grow for each pending task.
func (b *bench) pendingMemory(ctx context.Context, tasks pendingTasks) (leader float64, followers []float64, err error) {
	err = with(ctx, tasks.cfg, func(c *cluster.Cluster) error {
		n, err := c.AwaitLeader(ctx)
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		if err := setWeights(ctx, cl, tasks.queues); err != nil {
			return err
		}
		// The first job allocates buffers once. They don't count towards the tasks of the others.
		if err := submitPending(ctx, cl, b.pending/10, tasks.queues[:1]); err != nil {
			return err
		}
		each := b.pending / len(tasks.queues)
		before, err := heaps(ctx, cl)
		if err != nil {
			return err
		}
		if err := submitPending(ctx, cl, each, tasks.queues); err != nil {
			return err
		}
		after, err := heaps(ctx, cl)
		if err != nil {
			return err
		}
		for addr, size := range after {
			perTask := (size - before[addr]) / float64(each*len(tasks.queues))
			if addr == n.Addr {
				leader = perTask
			} else {
				followers = append(followers, perTask)
			}
		}
		return nil
	})
	return leader, followers, err
}

// submitPending submits a job of so many tasks to each queue.
func submitPending(ctx context.Context, cl *client.Client, tasks int, queues []string) error {
	job, err := pending("pending", tasks, nil)
	if err != nil {
		return err
	}
	for _, queue := range queues {
		job.Header.Queue = queue
		if _, err = cl.Submit(ctx, job, client.SubmitOptions{}); err != nil {
			return fmt.Errorf("submitting: %w", err)
		}
	}
	return nil
}

// heaps returns the live heap of every replica, by address, when they have settled: temporary
// memory is freed by then.
func heaps(ctx context.Context, cl *client.Client) (map[string]float64, error) {
	last, changed := map[string]float64{}, time.Now()
	err := cluster.Until(ctx, "the heaps have settled", settleLimit, func(ctx context.Context) error {
		if err := cluster.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		replicas, err := cl.Stats(ctx)
		if err != nil {
			return fmt.Errorf("reading counters: %w", err)
		}
		now := map[string]float64{}
		if len(replicas) != 3 {
			changed = time.Now()
		}
		for _, r := range replicas {
			heap := float64(r.Stats.GetHeapBytes())
			now[r.Address] = heap
			const near = 64 << 10 // bytes
			if diff := heap - last[r.Address]; diff > near || diff < -near {
				changed = time.Now()
			}
		}
		last = now
		if time.Since(changed) < settled {
			return fmt.Errorf("heaps of %v: %w", now, cluster.ErrNotYet)
		}
		return nil
	})
	return last, err
}

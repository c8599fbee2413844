package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/bench/load"
	"github.com/dtask/dtask/test/cluster"
)

// handshakeFiles are the open files that this process needs beside its connections.
const handshakeFiles = 500

// bareYardstick is the name of the row of handshakes without anything else, for ratios.
const bareYardstick = "one handshake of each worker alone"

// atOnce is how many workers open their sessions at a time: with more, this process would do
// fewer handshakes than those that time out meanwhile.
const atOnce = 500

// fleetHeartbeat is the heartbeat interval that docs/tuning.md advises for as many workers.
const fleetHeartbeat = 3 * time.Second

// steadyFor is how long the next leader must keep its term after all workers are back.
const steadyFor = 5 * time.Second

// handshakes kills the leader of a cluster with TLS whose workers all have connections of
// their own, so that each of them needs a handshake with the next leader at the same time.
func handshakes(ctx context.Context, b *bench) error {
	f := fleet{workers: b.idle, slots: 4, direct: true, heartbeat: fleetHeartbeat}
	files, err := program.RaiseFiles()
	if err != nil {
		return err //nolint:wrapcheck // says what it is
	}
	if need := uint64(f.workers + handshakeFiles); files < need { //nolint:gosec // not negative
		return fmt.Errorf("%d workers need %d open files; the hard limit is %d", f.workers, need, files)
	}
	bare, err := bareHandshakes(ctx)
	if err != nil {
		return err
	}
	var all []comeback
	err = with(ctx, cluster.Config{TLS: true, CoordinatorFlags: []string{"--heartbeat-interval", fleetHeartbeat.String()}}, func(c *cluster.Cluster) error {
		begins := new(begins)
		l, stop, err := directFleet(ctx, c, f, begins)
		if err != nil {
			return err
		}
		defer stop()
		for range max(1, b.kills/2) {
			k, err := b.killUnder(ctx, c, l, f, begins)
			if err != nil {
				return err
			}
			all = append(all, k)
		}
		return nil
	})
	if err != nil {
		return err
	}
	setting := fmt.Sprintf("%d x SIGKILL of the leader; %s with TLS, in one process with the client, at most %d connecting", len(all), f, atOnce)
	b.table.add(bareYardstick, "s", fmt.Sprintf("%.0f per second, both sides, on all processors", bare), float64(f.workers)/bare)
	b.table.add("handshakes: until completions resume", "ms", setting+"; target: below 500", values(all, func(k comeback) float64 { return k.loss.back })...)
	b.table.add("handshakes: until the first worker is back", "ms", "the workers first close their connections to the last leader", values(all, func(k comeback) float64 { return k.first })...)
	b.table.add("handshakes: CPU of the coordinators until then", "ms", "the workers use the rest of all processors", values(all, func(k comeback) float64 { return k.firstCPU })...)
	b.table.compare("handshakes: until all workers are back", "s", "target: below 8", bareYardstick, values(all, func(k comeback) float64 { return k.workers })...)
	b.table.add("handshakes: CPU of the coordinators meanwhile", "s", "what machines of their own would need for it, and for the tasks", values(all, func(k comeback) float64 { return k.cpu })...)
	b.table.add("handshakes: of each worker meanwhile", "", "complete", values(all, func(k comeback) float64 { return k.handshakes })...)
	b.table.add("handshakes: that failed, of each worker", "", "", values(all, func(k comeback) float64 { return k.failed })...)
	b.table.add("handshakes: further elections", "", "target: 0", values(all, func(k comeback) float64 { return k.elections })...)
	b.table.add("handshakes: tasks missing", "", "", values(all, func(k comeback) float64 { return k.loss.missing })...)
	b.table.add("handshakes: tasks started twice", "", "", values(all, func(k comeback) float64 { return k.loss.twice })...)
	return nil
}

// A comeback is what follows the loss of a leader whose workers have connections of their
// own.
type comeback struct {
	loss      loss
	first     float64 // ms until the first worker is back
	firstCPU  float64 // ms of CPU of the coordinators until then
	workers   float64 // s until all are back
	elections float64 // beyond the first
	// complete and incomplete handshakes until then, for each worker
	handshakes, failed float64
	cpu                float64 // s, of the coordinators until then
}

// directFleet starts simulated workers with keys and connections of their own in this
// process; stop ends them.
func directFleet(ctx context.Context, c *cluster.Cluster, f fleet, begins *begins) (l *load.Load, stop func(), err error) {
	cfg := load.Config{
		Addrs: c.Addrs, Workers: f.workers, Slots: f.slots, Connections: f.workers, Own: true, Opening: atOnce, HeartbeatInterval: f.heartbeat,
		OnStart: func(_ uint64, task uint32) { begins.note(task) },
	}
	names := make([]string, f.workers)
	for i := range names {
		names[i] = load.WorkerName("load", i)
	}
	secrets := c.Secrets()
	if cfg.Secure, err = load.Identities(ctx, secrets.CA, secrets.Join, names); err != nil {
		return nil, nil, err //nolint:wrapcheck // says what it is
	}
	return openFleet(ctx, cfg)
}

// killUnder kills the leader while tasks run, and measures what follows.
func (b *bench) killUnder(ctx context.Context, c *cluster.Cluster, l *load.Load, f fleet, begins *begins) (k comeback, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	cl, err := c.Client()
	if err != nil {
		return k, err
	}
	defer func() { _ = cl.Close() }() // its calls have ended
	before, err := c.Status(ctx)
	if err != nil {
		return k, err
	}
	var measuring sync.WaitGroup
	var back error
	lost := func() {
		killed, used, was := time.Now(), coordinatorsCPU(c), l.Stats()
		measuring.Go(func() {
			back = cluster.Until(ctx, "all workers are back", failoverLimit, func(context.Context) error {
				s := l.Stats()
				if k.first == 0 && s.Sessions > was.Sessions {
					k.first, k.firstCPU = time.Since(killed).Seconds()*1000, (coordinatorsCPU(c)-used).Seconds()*1000
				}
				if s.Sessions < was.Sessions+int64(f.workers) || s.Open < int64(f.workers) {
					return fmt.Errorf("%d of %d sessions are open", s.Open, f.workers)
				}
				return nil
			})
			k.workers = time.Since(killed).Seconds()
			k.cpu = (coordinatorsCPU(c) - used).Seconds()
			now := l.Stats()
			k.handshakes = float64(now.Handshakes-was.Handshakes) / float64(f.workers)
			k.failed = float64(now.Unsecured-was.Unsecured) / float64(f.workers)
		})
	}
	k.loss, err = oneKill(ctx, c, cl, begins, b.tasks, lost)
	measuring.Wait()
	if err := errors.Join(err, back); err != nil {
		return k, fmt.Errorf("%w; sessions were lost because of %v", err, l.Reasons())
	}
	select {
	case <-time.After(steadyFor):
	case <-ctx.Done():
		return k, context.Cause(ctx)
	}
	after, err := c.Status(ctx)
	if err != nil {
		return k, err
	}
	k.elections = float64(after.Term) - float64(before.Term) - 1
	return k, nil
}

// coordinatorsCPU is the CPU time of all coordinators that run; 0 if it is unknown.
func coordinatorsCPU(c *cluster.Cluster) (total time.Duration) {
	for _, n := range c.Coordinators() {
		if used, err := cpuOf(n.Pid()); err == nil {
			total += used
		}
	}
	return total
}

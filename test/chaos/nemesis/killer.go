package nemesis

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// progressLimit is the maximum time without progress after a kill. It is a guard.
const progressLimit = 10 * time.Minute

// KillLeaders kills leaders one after another as fast as is fair: each is restarted
// immediately, and the next one is killed when there is another leader, progress has
// continued under it, and the previous one is back, so that a majority is available
// at each kill. It takes all replicas. progress counts something that grows only
// under a working leader.
func (w *World) KillLeaders(ctx context.Context, many int, progress func() int64) (*Outcome, error) {
	release, err := w.Take("killer of leaders", replicas(w.Cluster.Coordinators()...)...)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &Outcome{Fired: make(map[string]int), Names: make(map[string]int), Cannot: make(map[string]string)}
	began := time.Now()
	for len(out.Steps) < many && ctx.Err() == nil {
		var leader *cluster.Coordinator
		err := cluster.Until(ctx, "a leader is elected", progressLimit, func(ctx context.Context) (err error) {
			leader, err = w.Leader(ctx)
			return err
		})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return out, fmt.Errorf("killing leaders: %w", err)
		}
		pauseOr(ctx, time.Duration(w.Random.IntN(200))*time.Millisecond)
		at := time.Now()
		if err := w.Kill(ctx, leader); err != nil {
			return out, err
		}
		if err := Ensure(context.WithoutCancel(ctx), leader.Process); err != nil {
			return out, fmt.Errorf("killing leaders: %w", err)
		}
		if err := w.flows(ctx, leader, progress); err != nil && ctx.Err() == nil {
			return out, fmt.Errorf("after kill %d, of %s: %w", len(out.Steps)+1, leader.Name, err)
		}
		out.Steps = append(out.Steps, Step{At: at.Sub(began), Kind: "F1", Name: "leader-sigkill", Took: time.Since(at)})
		out.Fired["F1"]++
		out.Names["F1 leader-sigkill"]++
	}
	return out, nil // time expired, or all done
}

// flows waits until work continues under another leader and the killed one is back.
func (w *World) flows(ctx context.Context, killed *cluster.Coordinator, progress func() int64) error {
	var from int64 = -1
	return cluster.Until(ctx, "work resumes under another leader", progressLimit, func(ctx context.Context) error {
		s, err := w.status.ClusterStatus(ctx)
		if err != nil {
			return fmt.Errorf("reading status: %w", err)
		}
		if s.GetLeader() == "" {
			return fmt.Errorf("no leader in term %d", s.GetTerm())
		}
		if from < 0 {
			from = progress()
		}
		if now := progress(); now <= from {
			return fmt.Errorf("no progress under %s in term %d", s.GetLeader(), s.GetTerm())
		}
		for _, m := range s.GetMembers() {
			const near = 256 // entries; under load a replica always lags
			if killed.Is(m.GetId()) && (m.GetState() == "unreachable" || m.GetLag() > near) {
				return fmt.Errorf("%s is %s, %d entries behind", m.GetId(), m.GetState(), m.GetLag())
			}
		}
		return nil
	})
}

// backToBack kills the leader, and its successor within half a second of the election.
func backToBack(ctx context.Context, w *World, hold time.Duration) error {
	all := w.Cluster.Coordinators()
	release, err := w.Take("back to back", replicas(all...)...)
	if err != nil {
		return err
	}
	leader, err := w.Leader(ctx)
	if err != nil {
		release()
		return err
	}
	if err = w.Kill(ctx, leader); err == nil {
		err = Ensure(ctx, leader.Process)
	}
	killed := []*cluster.Coordinator{leader}
	for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline) && ctx.Err() == nil; {
		next, nobody := w.Leader(ctx)
		if nobody != nil || next == leader {
			pauseOr(ctx, 5*time.Millisecond)
			continue
		}
		pauseOr(ctx, time.Duration(w.Random.IntN(400))*time.Millisecond)
		err = w.Kill(ctx, next)
		killed = append(killed, next)
		break
	}
	pauseOr(ctx, min(hold, downAtMost))
	return firstOf(err, w.revive(ctx, release, killed...))
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

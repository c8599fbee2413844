package coordinator

import (
	"context"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
)

const (
	// conflictLogInterval is how often a replica that stays out of the cluster logs why.
	conflictLogInterval = time.Minute
	// verifiedInterval is how often a replica with an unverified data directory checks
	// whether it has caught up.
	verifiedInterval = 500 * time.Millisecond
)

// stayOut reports the conflict of the data directory until ctx is done. Raft does not
// run: this replica votes for nobody and stores nothing. The others can ask it to
// identify itself, and see its alarm.
func (r *replica) stayOut(ctx context.Context, c datadir.Conflict) error {
	conflict := &raftnode.ConflictError{ServerID: r.dir.serverID, Conflict: c}
	r.alarms.RaiseSince(membership.AlarmHistoryConflict, conflict.Error(), c.Found)
	tick := time.NewTicker(r.cfg.TimeScale.Scale(conflictLogInterval))
	defer tick.Stop()
	for {
		r.log.ErrorContext(ctx, "staying out of the cluster", "err", conflict)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// checkStale asks the others whether a data directory with Raft state is current.
func (r *replica) checkStale(ctx context.Context) error {
	last := r.dir.found.Last
	orderly, err := datadir.TakeStopped(r.cfg.DataDir, last)
	if err != nil {
		return err
	}
	missing, err := r.candidate.CheckStale(ctx, last, orderly)
	if isRefused(err) {
		return &FatalError{err}
	}
	if err == nil && len(missing) > 0 {
		r.log.WarnContext(ctx, "data directory not verified", "no_answer", missing, "last_index", last)
		r.alarms.Raise(membership.AlarmUnverifiedDirectory, "started after a crash without an answer of "+strings.Join(missing, ", ")+
			": if the data directory is an older copy, acknowledged jobs may be missing; start these replicas")
	}
	return err
}

// clearUnverified waits until this replica has caught up with a leader, or leads and all
// other voters have its log, and clears the alarm about its data directory.
func (r *replica) clearUnverified(ctx context.Context, node *raftnode.Node) error {
	tick := time.NewTicker(r.cfg.TimeScale.Scale(verifiedInterval))
	defer tick.Stop()
	for !r.hasCaughtUp(node) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.alarms.Clear(membership.AlarmUnverifiedDirectory)
	return nil
}

func (r *replica) hasCaughtUp(node *raftnode.Node) bool {
	last := r.dir.found.Last
	if leader, _ := node.Leader(); leader != r.dir.serverID {
		return leader != "" && node.CommitIndex() >= last
	}
	for _, s := range node.Servers() {
		if s.Voter && node.DurableIndex(s.ID) < last {
			return false
		}
	}
	return true
}

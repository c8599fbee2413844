package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// reconcileInterval separates two passes over the members.
	reconcileInterval = 100 * time.Millisecond
	// probeMemberTimeout is how long members may take to identify themselves.
	probeMemberTimeout = 500 * time.Millisecond
	// maxPromotionLag is how many entries a non-voter may be behind the commit index to
	// become a voter.
	maxPromotionLag = 256
	// lowWaterMarkInterval and lowWaterMarkStep limit how often the members' progress
	// is recorded, because each record is an operation in the log.
	lowWaterMarkInterval = 10 * time.Second
	lowWaterMarkStep     = 64
)

// Reconciler is the leader's duty that keeps the records about the members. It records
// the instance of each one at first contact: from then on another data directory
// under its server id is refused. It promotes non-voters that have caught up. It
// records how much each member has stored, so that an older copy of its data directory
// is detected. Everything that it knows is in the state and in the configuration: the
// next leader continues.
type Reconciler struct {
	ServerID string
	Machine  *fsm.Machine
	Peers    *Peers
	Node     func() Node
	Recorder func() Recorder // the nil interface until the term has a sequencer
	Scale    timescale.Factor
	Logger   *slog.Logger
}

// Name implements leader.Duty.
func (*Reconciler) Name() string { return "membership" }

// Run implements leader.Duty.
func (c *Reconciler) Run(ctx context.Context, _ uint64) error {
	tick := time.NewTicker(c.Scale.Scale(reconcileInterval))
	defer tick.Stop()
	marks := time.NewTicker(c.Scale.Scale(lowWaterMarkInterval))
	defer marks.Stop()
	for {
		recorder := c.Recorder()
		if recorder != nil {
			c.record(ctx, recorder)
			c.promote(ctx)
		}
		select {
		case <-tick.C:
		case <-marks.C:
			if recorder != nil {
				c.recordLowWaterMarks(ctx, recorder)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// record records the instances of members that answer now.
func (c *Reconciler) record(ctx context.Context, recorder Recorder) {
	for _, m := range c.Unrecorded(ctx) {
		err := recorder.Admit(ctx, m)
		if _, rejected := errors.AsType[*sequencer.RejectedError](err); rejected {
			c.Logger.WarnContext(ctx, "another instance is already recorded", "server_id", m.ServerID)
		}
	}
}

func (c *Reconciler) recorded(serverID string) (rec fsm.Replica, known bool) {
	c.Machine.Read(func(s *fsm.State, _ uint64) { rec, known = s.Replica(serverID) })
	return rec, known
}

// promote makes each non-voter that has caught up a voter, one after another.
func (c *Reconciler) promote(ctx context.Context) {
	node := c.Node()
	behind := nonvoters(node.Servers(), "")
	if len(behind) == 0 {
		return
	}
	commit := node.CommitIndex()
	for i, a := range c.Peers.IdentifyAll(ctx, behind, c.ServerID, probeMemberTimeout) {
		c.promoteMember(ctx, node, behind[i], a, commit)
	}
}

// promoteMember makes a non-voter a voter if it has stored nearly all entries up to commit.
// a is its answer, nil if there was none.
func (c *Reconciler) promoteMember(ctx context.Context, node Node, m raftnode.Server, a *dtaskv1.IdentifyResponse, commit uint64) {
	rec, known := c.recorded(m.ID)
	if !known || a.GetServerId() != m.ID || a.GetInstance() != rec.Instance || a.GetState() != memberFollower {
		return
	}
	// Acknowledged entries count, not the reported ones: an empty member that has not
	// started Raft is not far behind a short log.
	stored := node.DurableIndex(m.ID)
	if stored == 0 || stored+maxPromotionLag < commit {
		return
	}
	if err := node.AddVoter(ctx, m.ID, m.Address); err != nil {
		c.Logger.WarnContext(ctx, "promoting a non-voter failed", "server_id", m.ID, "err", err)
		return
	}
	c.Logger.InfoContext(ctx, "member promoted to voter", "server_id", m.ID, "index", stored)
}

func (c *Reconciler) recordLowWaterMarks(ctx context.Context, recorder Recorder) {
	node := c.Node()
	for _, m := range node.Servers() {
		rec, known := c.recorded(m.ID)
		if stored := node.DurableIndex(m.ID); known && stored >= rec.LowWaterMark+lowWaterMarkStep {
			rec.LowWaterMark = stored
			_ = recorder.Admit(ctx, rec) // the next pass, or the next leader, repeats it
		}
	}
}

// Unrecorded asks each member whose instance is not recorded at its address in the
// configuration, and returns those that answer.
func (c *Reconciler) Unrecorded(ctx context.Context) (found []fsm.Replica) {
	unrecorded := slices.DeleteFunc(c.Node().Servers(), func(m raftnode.Server) bool {
		_, known := c.recorded(m.ID)
		return known
	})
	for _, a := range c.Peers.IdentifyAll(ctx, unrecorded, c.ServerID, probeMemberTimeout) {
		if a != nil {
			found = append(found, fsm.Replica{ServerID: a.GetServerId(), Instance: a.GetInstance()})
		}
	}
	return found
}

package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// askLimit is how long members have to say who they are.
const askLimit = 500 * time.Millisecond

// Limits of what the registrar does.
const (
	// almost is how many entries behind the commit a member may be that gets a vote.
	almost = 256
	// floorEvery is how often it is recorded how far the members have got, and
	// floorStep by how much they must have: the record is an entry, too.
	floorEvery = 10 * time.Second
	floorStep  = 64
)

// registrar is the leader's duty of keeping the books on the members. It records which
// instance each one is, at first contact: from then on another folder under its id is
// refused. It gives a vote to a member that has caught up. And it records how far each
// one's log has got, so that an older copy of its folder is found out. All that it
// knows is in the state and the configuration: the next leader goes on.
type registrar struct{ r *replica }

// Name implements leader.Duty.
func (registrar) Name() string { return "registrar" }

// Run implements leader.Duty.
func (d registrar) Run(ctx context.Context, _ uint64) error {
	tick := time.NewTicker(d.r.cfg.TimeScale.Scale(100 * time.Millisecond))
	defer tick.Stop()
	floors := time.NewTicker(d.r.cfg.TimeScale.Scale(floorEvery))
	defer floors.Stop()
	for {
		if term := d.r.term.Load(); term != nil {
			d.record(ctx, term)
			d.promote(ctx)
		}
		select {
		case <-tick.C:
		case <-floors.C:
			if term := d.r.term.Load(); term != nil {
				d.recordFloors(ctx, term)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// record records the members that answer now.
func (d registrar) record(ctx context.Context, term *sequencer.Sequencer) {
	for _, m := range d.r.unrecorded(ctx) {
		err := term.Admit(ctx, m)
		if _, refused := errors.AsType[*sequencer.RejectedError](err); refused {
			d.r.log.WarnContext(ctx, "another instance was recorded first", "server_id", m.ServerID)
		}
	}
}

// promote gives a vote to the first member that has none and has caught up: one change
// at a time.
func (d registrar) promote(ctx context.Context) {
	node := d.r.node.Load()
	for _, s := range node.Servers() {
		if s.Voter {
			continue
		}
		commit := node.CommitIndex()
		known, recorded := d.r.knownInstance(s.ID)
		if !recorded {
			return
		}
		once, cancel := context.WithTimeout(ctx, askLimit)
		a, err := d.r.peers.Identify(once, s.Address)
		cancel()
		if err != nil || a.GetServerId() != s.ID || a.GetInstance() != known || a.GetState() != "follower" {
			return
		}
		// What it has acknowledged counts, not what it says: an empty one that is only
		// about to run Raft is not far behind a log that is short.
		if stored := node.Stored(s.ID); stored == 0 || stored+almost < commit {
			return
		}
		if err := node.AddVoter(ctx, s.ID, s.Address); err != nil {
			d.r.log.WarnContext(ctx, "a member that has caught up got no vote yet", "server_id", s.ID, "err", err)
			return
		}
		d.r.log.InfoContext(ctx, "a member has caught up and got its vote", "server_id", s.ID, "at", node.Stored(s.ID))
		return
	}
}

func (d registrar) recordFloors(ctx context.Context, term *sequencer.Sequencer) {
	node := d.r.node.Load()
	for _, s := range node.Servers() {
		var rec fsm.Replica
		var known bool
		d.r.machine.Read(func(st *fsm.State, _ uint64) { rec, known = st.Replica(s.ID) })
		if stored := node.Stored(s.ID); known && stored >= rec.LowWaterMark+floorStep {
			rec.LowWaterMark = stored
			_ = term.Admit(ctx, rec) // it is tried again, and by the next leader
		}
	}
}

// unrecorded asks each member whose instance is not recorded, where the
// configuration says that it is, and gives those that answer.
func (r *replica) unrecorded(ctx context.Context) []fsm.Replica {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards found
		found []fsm.Replica
	)
	for _, m := range r.membership.Members() {
		if _, known := r.knownInstance(m.ID); known || m.ID == r.id {
			continue
		}
		wg.Go(func() {
			id, err := r.peers.Identify(ctx, m.Address)
			if err != nil || id.GetServerId() != m.ID {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, fsm.Replica{ServerID: m.ID, Instance: id.GetInstance()})
		})
	}
	wg.Wait()
	return found
}

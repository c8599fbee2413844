package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Admit implements ClusterService. It is idempotent by nature.
func (c *cluster) Admit(ctx context.Context, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	if !isName(r.GetServerId()) || len(r.GetInstance()) != 32 {
		return nil, invalid("server_id, instance: send an id of 1 to %d characters and an instance of 32 hexadecimal digits", maxServerID)
	}
	if id, outdated := c.outdated(r); outdated {
		return &dtaskv1.AdmitResponse{ClusterId: id, ServerId: r.GetServerId(), Outdated: true}, nil
	}
	leader, changer, err := c.leading(ctx)
	if err != nil {
		return nil, err
	}
	clusterID, rec, known := c.recorded(r.GetServerId())
	switch {
	case r.GetClusterId() != "" && r.GetClusterId() != clusterID:
		return nil, refused("server %s belongs to cluster %s, and this is cluster %s", r.GetServerId(), r.GetClusterId(), clusterID)
	case r.GetRejoin():
		return c.rejoin(ctx, leader, changer, clusterID, r)
	case known && rec.Instance != r.GetInstance():
		return nil, otherInstance(r.GetServerId())
	case known:
		member, err := c.isMember(ctx, changer, r.GetServerId())
		if err != nil {
			return nil, err
		}
		if !member {
			return nil, wasRemoved(r.GetServerId())
		}
		_, outdated := c.outdated(r) // a confirmed leader has applied what was recorded
		return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: rec.ServerID, Outdated: outdated}, nil
	}
	if err := c.vouch(ctx, r); err != nil {
		return nil, err
	}
	if err := record(ctx, leader, fsm.Replica{ServerID: r.GetServerId(), Instance: r.GetInstance()}); err != nil {
		return nil, err
	}
	return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: r.GetServerId()}, nil
}

// outdated reports whether this replica has seen that a member stored more than its
// folder holds now. Who has seen it need not lead: what was stored is stored for good.
func (c *cluster) outdated(r *dtaskv1.AdmitRequest) (clusterID string, outdated bool) {
	clusterID, rec, known := c.recorded(r.GetServerId())
	changer := c.cfg.Changer()
	if !r.GetStored() || !known || rec.Instance != r.GetInstance() || clusterID != r.GetClusterId() || changer == nil {
		return clusterID, false
	}
	return clusterID, r.GetLastIndex() < max(rec.LowWaterMark, changer.Stored(rec.ServerID))
}

// recorded gives the cluster's name and what the state knows about a server.
func (c *cluster) recorded(serverID string) (clusterID string, rec fsm.Replica, known bool) {
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		clusterID = st.ClusterID()
		rec, known = st.Replica(serverID)
	})
	return clusterID, rec, known
}

// leading gives the term and the configuration, if this replica surely leads.
func (c *cluster) leading(ctx context.Context) (Leader, Changer, error) {
	leader, changer := c.cfg.Leader(), c.cfg.Changer()
	if leader == nil || changer == nil {
		return nil, nil, errNotLeader
	}
	return leader, changer, c.confirm(ctx)
}

func record(ctx context.Context, leader Leader, r fsm.Replica) error {
	err := leader.Admit(ctx, r)
	if _, rejected := errors.AsType[*sequencer.RejectedError](err); rejected {
		return otherInstance(r.ServerID) // another was first
	}
	if err != nil {
		return fmt.Errorf("recording server %s: %w", r.ServerID, err)
	}
	return nil
}

// isMember reports whether a recorded server is in the configuration. A removal that
// is not committed yet may still come to nothing.
func (c *cluster) isMember(ctx context.Context, changer Changer, id string) (bool, error) {
	if indexOf(c.cfg.Members(), id) >= 0 {
		return true, nil
	}
	if _, err := changer.Barrier(ctx); err != nil {
		return false, busy("the configuration of the cluster is not certain yet: %v", err)
	}
	return indexOf(c.cfg.Members(), id) >= 0, nil
}

func indexOf(members []Member, id string) int {
	return slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
}

func busy(format string, args ...any) error {
	return &Error{Kind: KindBusy, Message: fmt.Sprintf(format, args...), RetryAfter: time.Second}
}

func otherInstance(serverID string) error {
	return refused("server id %s is known to the cluster with another data folder: its own was lost or replaced. "+
		"Start it with its old folder, or with --auto-rejoin: then it comes back under a new server id", serverID)
}

func wasRemoved(serverID string) error {
	return refused("server %s was removed from the cluster, and its id is never used again: to add it anew, start it with an "+
		"empty folder and a new --id, and use dtaskctl cluster add", serverID)
}

// rejoin gives a replica whose folder was lost a new id, in the place of the old one:
//
//	record the new id with its instance and whom it replaces
//	  ─► remove the old id  ─► add the new one without a vote  ─► answer
//
// Whatever cuts this short, the replica asks again, and the leader of that time finds
// in the state and the configuration how far it got. The old one goes first: it is
// dead, so that the majority of those that are left is not larger than before, and
// nobody can vote under its id again.
func (c *cluster) rejoin(ctx context.Context, leader Leader, changer Changer, clusterID string, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	if !isAddress(r.GetAddress()) {
		return nil, invalid("address: send the HOST:PORT that the others dial")
	}
	if !c.changing.TryLock() {
		return nil, errChanging
	}
	defer c.changing.Unlock()
	next, err := c.successor(ctx, changer, r)
	if err != nil {
		return nil, err
	}
	if err := record(ctx, leader, next); err != nil {
		return nil, err
	}
	members := c.cfg.Members()
	if i := indexOf(members, next.ServerID); i >= 0 {
		return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: next.ServerID}, nil
	}
	if m, waits := waiting(members); waits && m.ID != next.Replaces {
		return nil, busy("%s is catching up: one change at a time", m.ID)
	}
	if indexOf(members, next.Replaces) >= 0 {
		if err := c.changed(changer.Remove(ctx, next.Replaces)); err != nil {
			return nil, err
		}
	}
	if err := c.changed(changer.AddNonvoter(ctx, next.ServerID, r.GetAddress())); err != nil {
		return nil, err
	}
	c.cfg.Logger.InfoContext(ctx, "a replica rejoins under a new id", "server_id", next.ServerID, "replaces", next.Replaces, "address", r.GetAddress())
	return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: next.ServerID}, nil
}

// successor finds or makes the record of who takes the place of a lost replica.
func (c *cluster) successor(ctx context.Context, changer Changer, r *dtaskv1.AdmitRequest) (next fsm.Replica, err error) {
	members := c.cfg.Members()
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if rec, ok := st.ReplicaByInstance(r.GetInstance()); ok { // it asked before
			next = rec
			return
		}
		old := lastOf(st, members, r.GetServerId())
		for n := 1; next.ServerID == ""; n++ {
			id := fmt.Sprintf("%s-%d", r.GetServerId(), n)
			if _, used := st.Replica(id); !used && indexOf(members, id) < 0 {
				next = fsm.Replica{ServerID: id, Instance: r.GetInstance(), Replaces: old.ID}
			}
		}
	})
	if next.Replaces == "" {
		return next, refused("server %s cannot rejoin: its folder is not lost, or it is no member of this cluster any more; a new one is added with dtaskctl cluster add", r.GetServerId())
	}
	i := indexOf(members, next.Replaces)
	if i < 0 {
		return next, nil
	}
	var lost fsm.Replica
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) { lost, _ = st.Replica(next.Replaces) })
	if c.alive(ctx, members[i], lost) {
		return next, refused("server %s runs at %s with its data folder: there must not be two of them, stop one", lost.ServerID, members[i].Address)
	}
	if time.Since(changer.Heard(next.Replaces)) < lostAfter {
		return next, busy("server %s was heard just now at %s: it may still run", next.Replaces, members[i].Address)
	}
	return next, nil
}

// lastOf finds the member that came last in the place of a server, or is it.
func lastOf(st *fsm.State, members []Member, id string) (last Member) {
	for _, m := range members {
		if descends(st, m.ID, id) && (last.ID == "" || descends(st, m.ID, last.ID)) {
			last = m
		}
	}
	return last
}

// descends reports whether a server is another one, or came in its place.
func descends(st *fsm.State, id, from string) bool {
	for range maxLineage {
		if id == from {
			return true
		}
		r, known := st.Replica(id)
		if !known || r.Replaces == "" {
			return false
		}
		id = r.Replaces
	}
	return false
}

// lostAfter is for how long a replica must not have been heard to be replaced.
const lostAfter = 2 * time.Second

// maxLineage bounds how often a replica may have been replaced for its line to be
// followed.
const maxLineage = 10_000

// alive reports whether a member answers at its address with the folder that is
// recorded.
func (c *cluster) alive(ctx context.Context, m Member, rec fsm.Replica) bool {
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	a, err := c.cfg.Peers.Identify(ctx, m.Address)
	return err == nil && a.GetServerId() == m.ID && (rec.Instance == "" || a.GetInstance() == rec.Instance)
}

func isAddress(s string) bool { return strings.Contains(s, ":") && len(s) <= maxServerID }

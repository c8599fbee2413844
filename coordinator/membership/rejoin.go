package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// lostAfter is how long a replica must have been silent to be replaced.
	lostAfter = 2 * time.Second
	// maxLineage bounds the predecessors that are followed from one replica.
	maxLineage = 10_000
)

// rejoin gives a replica whose data directory was lost a new id in place of the old
// one (ADR 0015):
//
//	record the new id, its instance and its predecessor
//	  ─► remove the old id  ─► add the new one as a non-voter  ─► answer
//
// If this is interrupted, the replica asks again, and the leader of that time
// continues from the state and the configuration. The old id is removed first: its
// replica is dead, so that the majority of the remaining voters does not grow, and no
// process can vote under that id again.
func (s *Service) rejoin(ctx context.Context, recorder Recorder, node Node, clusterID string, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	if !isAddress(r.GetAddress()) {
		return nil, invalid("address: must be the HOST:PORT that the others dial")
	}
	end, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	next, err := s.successor(ctx, node, r)
	if err != nil {
		return nil, err
	}
	if err := s.checkNotRemoved(ctx, node, next.ServerID); err != nil {
		return nil, err
	}
	if err := s.exchange(ctx, recorder, node, next, r.GetAddress()); err != nil {
		return nil, err
	}
	return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: next.ServerID}, nil
}

// exchange records a replica, removes the member that it replaces, and adds it as a
// non-voter. It continues what an earlier call has begun. The caller holds changing.
func (s *Service) exchange(ctx context.Context, recorder Recorder, node Node, next fsm.Replica, address string) error {
	if err := record(ctx, recorder, next); err != nil {
		return err
	}
	members := node.Servers()
	if indexOf(members, next.ServerID) >= 0 {
		return nil
	}
	if behind := nonvoters(members, next.Replaces); len(behind) > 0 {
		return catchingUp(behind)
	}
	if indexOf(members, next.Replaces) >= 0 {
		if err := s.changeError(node.Remove(ctx, next.Replaces)); err != nil {
			return err
		}
	}
	if err := s.changeError(node.AddNonvoter(ctx, next.ServerID, address)); err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(ctx, "replica took the place of another one",
		"server_id", next.ServerID, "replaces", next.Replaces, "address", address)
	return nil
}

// successor finds or makes the record of the replica that replaces a lost one.
func (s *Service) successor(ctx context.Context, node Node, r *dtaskv1.AdmitRequest) (next fsm.Replica, err error) {
	members := node.Servers()
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if rec, ok := st.ReplicaByInstance(r.GetInstance()); ok { // of an earlier request
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
		return next, refused("server %s cannot rejoin: its data directory is not lost, or it is not a member any more; "+
			"add a new server with dtaskctl cluster add", r.GetServerId())
	}
	i := indexOf(members, next.Replaces)
	if i < 0 {
		return next, nil
	}
	_, lost, _ := s.recorded(next.Replaces)
	if s.alive(ctx, members[i], lost) {
		return next, refused("server %s runs at %s with its data directory: stop one of the two",
			lost.ServerID, members[i].Address)
	}
	if time.Since(node.LastContactOf(next.Replaces)) < lostAfter {
		return next, busy("server %s answered less than %s ago at %s: it may still run",
			next.Replaces, lostAfter, members[i].Address)
	}
	return next, nil
}

// lastOf finds the member that is a server or its latest successor.
func lastOf(st *fsm.State, members []raftnode.Server, id string) (last raftnode.Server) {
	for _, m := range members {
		// A coordinator that joined in its place is another machine.
		if tlsconf.Covers(id, m.ID) && descends(st, m.ID, id) && (last.ID == "" || descends(st, m.ID, last.ID)) {
			last = m
		}
	}
	return last
}

// descends reports whether a server is another one or its successor.
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

// alive reports whether a member answers at its address with the recorded data
// directory.
func (s *Service) alive(ctx context.Context, m raftnode.Server, rec fsm.Replica) bool {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	a, err := s.cfg.Peers.Identify(ctx, m.Address)
	return err == nil && a.GetServerId() == m.ID && (rec.Instance == "" || a.GetInstance() == rec.Instance)
}

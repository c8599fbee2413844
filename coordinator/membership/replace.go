package membership

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// replace lets a replica that joined with a join string take the place of a lost member on
// another machine (ADR 0015). The steps are those of rejoin, and so is their order. If they
// are interrupted, the replica asks again: it has no log yet, and its settings name the
// member that it replaces.
func (s *Service) replace(ctx context.Context, recorder Recorder, node Node, clusterID string, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	id, old := r.GetServerId(), r.GetReplaces()
	switch {
	case !isAddress(r.GetAddress()):
		return nil, invalid("address: must be the HOST:PORT that the others dial")
	case id == old:
		return nil, invalid("replaces: a server can't replace itself")
	case !s.hasJoined(id):
		return nil, refused("server %s can't replace %s: it has not joined with a join string, or was replaced itself; run dtaskd join STRING --replace %s", id, old, old)
	}
	end, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.checkNotRemoved(ctx, node, id); err != nil {
		return nil, err
	}
	// Until the lost member is removed, it may have returned, and another one may be lost.
	members := node.Servers()
	if indexOf(members, id) < 0 && !s.mayContinue(members, id, old) {
		if err := s.checkReplace(ctx, node, old); err != nil {
			return nil, err
		}
	}
	next := fsm.Replica{ServerID: id, Instance: r.GetInstance(), Replaces: old}
	if err := s.exchange(ctx, recorder, node, next, r.GetAddress()); err != nil {
		return nil, err
	}
	return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: id}, nil
}

// CheckReplace returns an *Error unless this replica leads, and a new coordinator can take
// the place of a member now: the member is lost, and the others are a majority without it.
func (s *Service) CheckReplace(ctx context.Context, serverID string) error {
	_, node, err := s.leading(ctx)
	if err != nil {
		return err
	}
	return s.checkReplace(ctx, node, serverID)
}

func (s *Service) checkReplace(ctx context.Context, node Node, id string) error {
	members := node.Servers()
	i := indexOf(members, id)
	_, rec, known := s.recorded(id)
	by, replaced := s.replacedBy(members, id)
	switch {
	case i < 0 && replaced:
		return refused("server %s was already replaced by %s: to add another coordinator, join without --replace", id, by)
	case i < 0 && known:
		return refused("server %s was already removed: join without --replace", id)
	case i < 0:
		return refused("server %q is not a member of this cluster: dtaskctl cluster status lists the members", id)
	case id == s.cfg.ServerID || s.alive(ctx, members[i], rec):
		return refused("server %[1]s runs at %[2]s, so it is not replaced: if its machine is to be retired, join without --replace, "+
			"wait for the vote, and run dtaskctl cluster remove %[1]s; if it is broken, stop it first", id, members[i].Address)
	case time.Since(node.LastContactOf(id)) < lostAfter:
		return busy("server %s answered less than %s ago at %s: it may still run", id, lostAfter, members[i].Address)
	}
	if behind := nonvoters(members, id); len(behind) > 0 {
		return catchingUp(behind)
	}
	return s.checkMajorityWithout(ctx, members, members[i])
}

// mayContinue reports whether a replica that has begun to take the place of another one may
// continue without a check: the other one was removed, and the place is free.
func (s *Service) mayContinue(members []raftnode.Server, id, old string) bool {
	_, rec, known := s.recorded(id)
	by, _ := s.replacedBy(members, old)
	return known && rec.Replaces == old && indexOf(members, old) < 0 && indexOf(members, by) < 0
}

// replacedBy returns the replica in the place of another one: if several have begun to take
// it, the one that is a member.
func (s *Service) replacedBy(members []raftnode.Server, id string) (by string, replaced bool) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		for _, m := range members {
			if r, known := st.Replica(m.ID); known && r.Replaces == id {
				by, replaced = m.ID, true
				return
			}
		}
		var r fsm.Replica
		r, replaced = st.ReplicaReplacing(id)
		by = r.ServerID
	})
	return by, replaced
}

// removedMark is the low-water mark of a replacement that is removed before it has stored
// anything. Marks of stored entries are higher.
const removedMark = 1

// markRemoved records that a replica which takes the place of another one is removed, and
// returns false if no mark is needed. A replica without a log asks again for its place, as
// after an interruption: the mark tells the two apart. It precedes the removal: if that is
// interrupted, the replica is still a member, and keeps its place.
func (s *Service) markRemoved(ctx context.Context, recorder Recorder, id string) (marked bool, err error) {
	_, rec, known := s.recorded(id)
	if !known || rec.Replaces == "" || rec.LowWaterMark > 0 {
		return false, nil
	}
	rec.LowWaterMark = removedMark
	if err := record(ctx, recorder, rec); err != nil {
		return false, err
	}
	s.cfg.Logger.InfoContext(ctx, "replacement marked as removed", "server_id", id, "replaces", rec.Replaces)
	return true, nil
}

// checkNotRemoved refuses a replacement that was removed: its place is not given to it
// again.
func (s *Service) checkNotRemoved(ctx context.Context, node Node, id string) error {
	_, rec, known := s.recorded(id)
	if !known || rec.LowWaterMark == 0 {
		return nil // it was not a member yet
	}
	member, err := isMember(ctx, node, id)
	if err == nil && !member {
		err = wasRemoved(id)
	}
	return err
}

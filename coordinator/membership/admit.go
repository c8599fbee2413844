package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxServerID bounds a server id and an address, in bytes.
const maxServerID = 128

func isName(id string) bool { return id != "" && len(id) <= maxServerID }

func isAddress(s string) bool { return strings.Contains(s, ":") && len(s) <= maxServerID }

// Admit implements ClusterService. It is idempotent.
func (s *Service) Admit(ctx context.Context, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	if !isName(r.GetServerId()) || len(r.GetInstance()) != 32 {
		return nil, invalid(fmt.Sprintf(
			"server_id, instance: must be an id of 1 to %d bytes and 32 hexadecimal digits", maxServerID))
	}
	if err := checkCaller(ctx, r.GetServerId()); err != nil {
		return nil, err
	}
	if id, stale := s.stale(r); stale {
		return &dtaskv1.AdmitResponse{ClusterId: id, ServerId: r.GetServerId(), Stale: true}, nil
	}
	recorder, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	clusterID, rec, known := s.recorded(r.GetServerId())
	unsupported := s.checkLevels(r.GetServerId(), r)
	switch {
	case r.GetClusterId() != "" && r.GetClusterId() != clusterID:
		return nil, refused("server %s belongs to cluster %s, and this is cluster %s",
			r.GetServerId(), r.GetClusterId(), clusterID)
	case unsupported != nil:
		return nil, unsupported
	case r.GetRejoin():
		return s.rejoin(ctx, recorder, node, clusterID, r)
	case r.GetReplaces() != "" && (!known || rec.Instance == r.GetInstance() && rec.Replaces == r.GetReplaces()):
		return s.replace(ctx, recorder, node, clusterID, r)
	case known && rec.Instance != r.GetInstance():
		return nil, otherInstance(r.GetServerId())
	case known:
		member, err := isMember(ctx, node, r.GetServerId())
		if err != nil {
			return nil, err
		}
		if !member {
			return nil, wasRemoved(r.GetServerId())
		}
		_, stale := s.stale(r) // again: a confirmed leader has applied the recorded low-water marks
		return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: rec.ServerID, Stale: stale}, nil
	}
	if err := s.verify(ctx, node, r); err != nil {
		return nil, err
	}
	if err := record(ctx, recorder, fsm.Replica{ServerID: r.GetServerId(), Instance: r.GetInstance()}); err != nil {
		return nil, err
	}
	return &dtaskv1.AdmitResponse{ClusterId: clusterID, ServerId: r.GetServerId()}, nil
}

// stale reports whether this replica knows that a member has stored more than its
// data directory has now. A replica that led before may know it, too: a stored entry
// stays stored.
func (s *Service) stale(r *dtaskv1.AdmitRequest) (clusterID string, stale bool) {
	clusterID, rec, known := s.recorded(r.GetServerId())
	node := s.cfg.Node()
	if !r.GetStored() || !known || rec.Instance != r.GetInstance() || clusterID != r.GetClusterId() || node == nil {
		return clusterID, false
	}
	stored := node.DurableIndex(rec.ServerID)
	if rec.LowWaterMark > removedMark { // which promises no entry
		stored = max(stored, rec.LowWaterMark)
	}
	return clusterID, r.GetLastIndex() < stored
}

// recorded returns the cluster's id and the record of a server.
func (s *Service) recorded(serverID string) (clusterID string, rec fsm.Replica, known bool) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		clusterID = st.ClusterID()
		rec, known = st.Replica(serverID)
	})
	return clusterID, rec, known
}

// verify asks a member whose instance is not recorded yet at the address in the
// configuration: another process may claim its id.
func (s *Service) verify(ctx context.Context, node Node, r *dtaskv1.AdmitRequest) error {
	members := node.Servers()
	i := indexOf(members, r.GetServerId())
	if i < 0 && s.hasJoined(r.GetServerId()) {
		return s.addJoined(ctx, r)
	}
	if i < 0 {
		return &Error{Kind: Busy, Message: fmt.Sprintf("server %[1]s is not a member of this cluster: "+
			"run dtaskctl cluster add %[1]s HOST:PORT", r.GetServerId())}
	}
	m := members[i]
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	id, err := s.cfg.Peers.Identify(ctx, m.Address)
	switch {
	case err != nil:
		return &Error{Kind: Busy, Message: fmt.Sprintf("server %s does not answer at its address %s", m.ID, m.Address)}
	case id.GetServerId() != m.ID || id.GetInstance() != r.GetInstance():
		return refused("server id %s belongs to the process at %s, which has another data directory; "+
			"start this one with its own id", m.ID, m.Address)
	}
	return nil
}

// addJoined adds a coordinator that has used a join string. One that does not answer in time
// is slow, because it has just called: it asks again, and would exit if it was refused.
func (s *Service) addJoined(ctx context.Context, r *dtaskv1.AdmitRequest) error {
	// Before AddMember, which holds up other changes of the members.
	asking, cancel := context.WithTimeout(ctx, identifyTimeout)
	_, err := s.cfg.Peers.Identify(asking, r.GetAddress())
	cancel()
	late := isLate(err)
	if !late {
		_, err = s.AddMember(ctx, &dtaskv1.AddMemberRequest{ServerId: r.GetServerId(), Address: r.GetAddress()})
		if e, ok := errors.AsType[*Error](err); ok {
			late = e.late
		}
	}
	switch {
	case late:
		return busy("server %s does not answer in time at its address %s: the members must reach it there, so check its --advertise and the firewall", r.GetServerId(), r.GetAddress())
	case err != nil:
		return err
	}
	return busy("server %s is being added to the cluster", r.GetServerId())
}

// hasJoined reports whether a server id was given to a coordinator that joined with a
// join string: nobody else needs to add it.
func (s *Service) hasJoined(serverID string) (joined bool) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		i := st.IdentityByName(serverID, false)
		_, replaced := st.ReplicaReplacing(serverID)
		joined = i != nil && i.Role == fsm.RoleReplica && !replaced
	})
	return joined
}

// checkCaller returns an error unless a call for a server id comes from that server.
func checkCaller(ctx context.Context, serverID string) error {
	if p := auth.FromContext(ctx); p != nil && p.Via != auth.ViaOpen && !tlsconf.Covers(p.Name, serverID) {
		return refused("the certificate of the caller is of server %s, not of %s", p.Name, serverID)
	}
	return nil
}

func record(ctx context.Context, recorder Recorder, r fsm.Replica) error {
	err := recorder.Admit(ctx, r)
	if _, rejected := errors.AsType[*sequencer.RejectedError](err); rejected {
		return otherInstance(r.ServerID) // another instance was recorded first
	}
	if err != nil {
		return fmt.Errorf("recording server %s: %w", r.ServerID, err)
	}
	return nil
}

// isMember reports whether a recorded server is in the configuration. A removal that
// is not committed yet may still fail.
func isMember(ctx context.Context, node Node, id string) (bool, error) {
	if indexOf(node.Servers(), id) >= 0 {
		return true, nil
	}
	if _, err := node.Barrier(ctx); err != nil {
		return false, busy("the cluster's configuration is not committed yet: %v", err)
	}
	return indexOf(node.Servers(), id) >= 0, nil
}

func indexOf(members []raftnode.Server, id string) int {
	return slices.IndexFunc(members, func(m raftnode.Server) bool { return m.ID == id })
}

package membership

import (
	"context"
	"fmt"
	"slices"

	"github.com/dtask/dtask/coordinator/raftnode"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxCatchingUp is how many members may catch up concurrently: enough to grow from one voter
// to three, or from three to five. The leader sends its whole state to each.
const maxCatchingUp = 2

// nonvoters returns the members that catch up, without that of the given id.
func nonvoters(members []raftnode.Server, without string) []raftnode.Server {
	return slices.DeleteFunc(slices.Clone(members), func(m raftnode.Server) bool { return m.Voter || m.ID == without })
}

// beginChange waits until no other call changes the members. The caller calls end.
func (s *Service) beginChange(ctx context.Context) (end func(), err error) {
	select {
	case s.changing <- struct{}{}:
		return func() { <-s.changing }, nil
	case <-ctx.Done():
		return nil, errChanging
	}
}

// changeError is the error of a change that may have been committed: a repeated call
// finds that out.
func (s *Service) changeError(err error) error {
	switch {
	case err == nil:
		return nil
	case s.cfg.Recorder() == nil:
		return errNotLeader
	default:
		return busy("%v", err)
	}
}

// AddMember implements ClusterService. It is idempotent.
func (s *Service) AddMember(ctx context.Context, r *dtaskv1.AddMemberRequest) (*dtaskv1.AddMemberResponse, error) {
	id, address := r.GetServerId(), r.GetAddress()
	if !isName(id) || !isAddress(address) {
		return nil, invalid(fmt.Sprintf(
			"server_id, address: must be an id of 1 to %d bytes and a HOST:PORT", maxServerID))
	}
	_, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	members := node.Servers()
	if i := indexOf(members, id); i >= 0 {
		if members[i].Address != address {
			return nil, &Error{Kind: Conflict, Message: fmt.Sprintf(
				"server %s is already a member, at %s", id, members[i].Address)}
		}
		return &dtaskv1.AddMemberResponse{Voter: members[i].Voter}, nil
	}
	if err := s.checkAdd(ctx, members, id, address); err != nil {
		return nil, err
	}
	if err := s.changeError(node.AddNonvoter(ctx, id, address)); err != nil {
		return nil, err
	}
	s.cfg.Logger.InfoContext(ctx, "member added as a non-voter",
		"server_id", id, "address", address)
	return &dtaskv1.AddMemberResponse{}, nil
}

func (s *Service) checkAdd(ctx context.Context, members []raftnode.Server, id, address string) error {
	clusterID, _, used := s.recorded(id)
	if used {
		return wasRemoved(id)
	}
	for _, m := range members {
		if m.Address == address {
			return refused("%s is the address of server %s", address, m.ID)
		}
	}
	if behind := nonvoters(members, ""); len(behind) >= maxCatchingUp {
		return catchingUp(behind)
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	a, err := s.cfg.Peers.Identify(ctx, address)
	switch {
	case err != nil:
		return &Error{Kind: Refused, late: isLate(err), Message: fmt.Sprintf("no answer from %s: start server %s first, with an empty data directory and with "+
			"the members and itself in --peers; it waits until it is added", address, id)}
	case a.GetServerId() != id:
		return refused("the server at %s is %s, not %s", address, a.GetServerId(), id)
	case a.GetClusterId() != "" && a.GetClusterId() != clusterID:
		return refused("server %s at %s belongs to cluster %s, and this is cluster %s",
			id, address, a.GetClusterId(), clusterID)
	case !a.GetEmpty():
		return refused("the data directory of server %s is not empty", id)
	}
	return s.checkLevels(id, a)
}

// RemoveMember implements ClusterService. It is idempotent.
func (s *Service) RemoveMember(ctx context.Context, r *dtaskv1.RemoveMemberRequest) (*dtaskv1.RemoveMemberResponse, error) {
	id := r.GetServerId()
	recorder, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	members := node.Servers()
	i := indexOf(members, id)
	if i < 0 {
		if _, _, known := s.recorded(id); !known {
			return nil, notFound(id)
		}
		marked, err := s.markRemoved(ctx, recorder, id) // it was about to be added
		return &dtaskv1.RemoveMemberResponse{AlreadyRemoved: !marked}, err
	}
	if behind := nonvoters(members, ""); members[i].Voter && len(behind) > 0 {
		return nil, catchingUp(behind)
	}
	if err := s.checkMajorityWithout(ctx, members, members[i]); err != nil {
		return nil, err
	}
	if id == s.cfg.ServerID { // the next leader removes this one
		if err := s.changeError(node.Transfer(ctx)); err != nil {
			return nil, err
		}
		return nil, errNotLeader
	}
	if _, err := s.markRemoved(ctx, recorder, id); err != nil {
		return nil, err
	}
	if err := s.changeError(node.Remove(ctx, id)); err != nil {
		return nil, err
	}
	s.cfg.Logger.InfoContext(ctx, "member removed", "server_id", id, "address", members[i].Address)
	return &dtaskv1.RemoveMemberResponse{}, nil
}

// checkMajorityWithout refuses a removal that leaves no majority of reachable voters.
func (s *Service) checkMajorityWithout(ctx context.Context, members []raftnode.Server, gone raftnode.Server) error {
	if !gone.Voter {
		return nil
	}
	voters, reachable := 0, 0
	var missing []string
	answers := s.askMembers(ctx, members, s.identify())
	for i, m := range members {
		switch {
		case !m.Voter || m.ID == gone.ID:
			continue
		case answers[i] != nil:
			reachable++
		default:
			missing = append(missing, m.ID)
		}
		voters++
	}
	if voters == 0 {
		return refused("server %s is the last voter: a cluster needs at least one", gone.ID)
	}
	if reachable >= voters/2+1 {
		return nil
	}
	return refused("without server %s only %d of %d voters are reachable, which is not a majority (%v do not answer): "+
		"start the missing servers or add others first", gone.ID, reachable, voters, missing)
}

// TransferLeadership implements ClusterService.
func (s *Service) TransferLeadership(ctx context.Context, r *dtaskv1.TransferLeadershipRequest) (*dtaskv1.TransferLeadershipResponse, error) {
	_, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	members, id := node.Servers(), r.GetServerId()
	voters := slices.DeleteFunc(slices.Clone(members),
		func(m raftnode.Server) bool { return !m.Voter })
	switch i := indexOf(members, id); {
	case id == s.cfg.ServerID:
		return &dtaskv1.TransferLeadershipResponse{}, nil
	case len(voters) < 2:
		return nil, refused("no other voter can lead")
	case id == "":
		err = node.Transfer(ctx)
	case i < 0:
		return nil, notFound(id)
	case !members[i].Voter:
		return nil, refused("server %s is not a voter yet", id)
	default:
		err = node.TransferTo(ctx, id)
	}
	if err != nil {
		return nil, refused("leadership not transferred: %v", err)
	}
	return &dtaskv1.TransferLeadershipResponse{}, nil
}

package api

import (
	"context"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// errChanging is given to whoever wants a second change at the same time.
var errChanging = busy("another change of the members is under way: one at a time")

// waiting gives a member that has no vote yet.
func waiting(members []Member) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return !m.Voter })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// changed says what an error of a change means: the change may have been committed.
func (c *cluster) changed(err error) error {
	if err == nil {
		return nil
	}
	if c.cfg.Leader() == nil {
		return errNotLeader // to ask again is safe: a change that was made is found
	}
	return busy("%v", err)
}

// AddMember implements ClusterService. It is idempotent by nature.
func (c *cluster) AddMember(ctx context.Context, r *dtaskv1.AddMemberRequest) (*dtaskv1.AddMemberResponse, error) {
	id, address := r.GetServerId(), r.GetAddress()
	if !isName(id) || !isAddress(address) {
		return nil, invalid("server_id, address: send an id of 1 to %d characters and a HOST:PORT", maxServerID)
	}
	_, changer, err := c.leading(ctx)
	if err != nil {
		return nil, err
	}
	if !c.changing.TryLock() {
		return nil, errChanging
	}
	defer c.changing.Unlock()
	members := c.cfg.Members()
	if i := indexOf(members, id); i >= 0 {
		if members[i].Address != address {
			return nil, conflict("server %s is a member already, at %s", id, members[i].Address)
		}
		return &dtaskv1.AddMemberResponse{Voter: members[i].Voter}, nil
	}
	if err := c.mayAdd(ctx, members, id, address); err != nil {
		return nil, err
	}
	if err := c.changed(changer.AddNonvoter(ctx, id, address)); err != nil {
		return nil, err
	}
	c.cfg.Logger.InfoContext(ctx, "a member was added; it gets a vote once it has caught up", "server_id", id, "address", address)
	return &dtaskv1.AddMemberResponse{}, nil
}

func (c *cluster) mayAdd(ctx context.Context, members []Member, id, address string) error {
	var clusterID string
	var used bool
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		clusterID = st.ClusterID()
		_, used = st.Replica(id)
	})
	if used {
		return wasRemoved(id)
	}
	for _, m := range members {
		if m.Address == address {
			return refused("%s is the address of server %s", address, m.ID)
		}
	}
	if m, waits := waiting(members); waits {
		return busy("%s is catching up: one change at a time", m.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	a, err := c.cfg.Peers.Identify(ctx, address)
	switch {
	case err != nil:
		return refused("nobody answers at %s: start server %s first, on an empty folder and with the members and itself in --peers; it waits until it is added", address, id)
	case a.GetServerId() != id:
		return refused("at %s runs server %s, not %s", address, a.GetServerId(), id)
	case a.GetClusterId() != "" && a.GetClusterId() != clusterID:
		return refused("server %s at %s belongs to cluster %s, and this is cluster %s", id, address, a.GetClusterId(), clusterID)
	case !a.GetEmpty():
		return refused("the folder of server %s is not empty", id)
	}
	return nil
}

// RemoveMember implements ClusterService. It is idempotent by nature.
func (c *cluster) RemoveMember(ctx context.Context, r *dtaskv1.RemoveMemberRequest) (*dtaskv1.RemoveMemberResponse, error) {
	id := r.GetServerId()
	_, changer, err := c.leading(ctx)
	if err != nil {
		return nil, err
	}
	if !c.changing.TryLock() {
		return nil, errChanging
	}
	defer c.changing.Unlock()
	members := c.cfg.Members()
	i := indexOf(members, id)
	if i < 0 {
		known := false
		c.cfg.Machine.Read(func(st *fsm.State, _ uint64) { _, known = st.Replica(id) })
		if !known {
			return nil, notFound("no server %s in this cluster; dtaskctl cluster status shows the members", id)
		}
		return &dtaskv1.RemoveMemberResponse{AlreadyRemoved: true}, nil
	}
	if m, waits := waiting(members); waits && m.ID != id {
		return nil, busy("%s is catching up: one change at a time", m.ID)
	}
	if err := c.majorityWithout(ctx, members, members[i]); err != nil {
		return nil, err
	}
	if id == c.cfg.ServerID { // the next leader removes this one
		if err := c.changed(changer.Transfer(ctx)); err != nil {
			return nil, err
		}
		return nil, errNotLeader
	}
	if err := c.changed(changer.Remove(ctx, id)); err != nil {
		return nil, err
	}
	c.cfg.Logger.InfoContext(ctx, "a member was removed", "server_id", id, "address", members[i].Address)
	return &dtaskv1.RemoveMemberResponse{}, nil
}

// majorityWithout refuses a removal after which those that answer would be no majority.
func (c *cluster) majorityWithout(ctx context.Context, members []Member, gone Member) error {
	if !gone.Voter {
		return nil
	}
	voters, healthy := 0, 0
	var missing []string
	answers := c.ask(ctx, members, c.identify())
	for i, m := range members {
		switch {
		case !m.Voter || m.ID == gone.ID:
			continue
		case answers[i] != nil:
			healthy++
		default:
			missing = append(missing, m.ID)
		}
		voters++
	}
	if healthy >= voters/2+1 {
		return nil
	}
	if voters == 0 {
		return refused("server %s is the last voter: without it there is no cluster", gone.ID)
	}
	return refused("without server %s only %d of %d voters would be there (%v do not answer), which is no majority: nothing could be stored any more. "+
		"Start the missing ones, or add others first", gone.ID, healthy, voters, missing)
}

// TransferLeadership implements ClusterService.
func (c *cluster) TransferLeadership(ctx context.Context, r *dtaskv1.TransferLeadershipRequest) (*dtaskv1.TransferLeadershipResponse, error) {
	_, changer, err := c.leading(ctx)
	if err != nil {
		return nil, err
	}
	members, id := c.cfg.Members(), r.GetServerId()
	voters := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Voter })
	switch i := indexOf(members, id); {
	case id == c.cfg.ServerID:
		return &dtaskv1.TransferLeadershipResponse{}, nil
	case len(voters) < 2:
		return nil, refused("there is no other voter to hand leadership to")
	case id == "":
		err = changer.Transfer(ctx)
	case i < 0:
		return nil, notFound("no server %s in this cluster; dtaskctl cluster status shows the members", id)
	case !members[i].Voter:
		return nil, refused("server %s has no vote yet", id)
	default:
		err = changer.TransferTo(ctx, id)
	}
	if err != nil {
		return nil, refused("leadership was not handed over: %v", err)
	}
	return &dtaskv1.TransferLeadershipResponse{}, nil
}

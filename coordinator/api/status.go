package api

import (
	"context"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// identifyLimit is how long a replica may take to say who it is before it
// counts as unreachable.
const identifyLimit = time.Second

// States of a member as Status shows them.
const (
	memberLeader      = "leader"
	memberFollower    = "follower"
	memberCandidate   = "candidate"
	memberUnreachable = "unreachable"
)

// Status implements ClusterService. It needs no leader: every member is asked
// now, and the leader is one that has just said so itself.
func (c *cluster) Status(ctx context.Context, _ *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	members := c.cfg.Members()
	if len(members) == 0 { // Raft does not run yet
		members = []Member{{ID: c.cfg.ServerID}}
	} else {
		c.cfg.Peers.retain(members)
	}
	self := c.identify()
	answers := c.ask(ctx, members, self)
	leader := leaderOf(answers)

	resp := &dtaskv1.StatusResponse{Leader: leader.GetServerId(), ClusterId: self.GetClusterId(), Replica: c.cfg.ServerID}
	if alarm := c.alarm.Load(); alarm != nil {
		resp.Alarm = *alarm
	}
	// The end of the leader's log is no measure: raft's own entries, which no state
	// machine sees, may be the last ones for days.
	furthest := leader.GetApplied()
	for _, a := range answers {
		resp.Term = max(resp.GetTerm(), a.GetTerm())
		if leader == nil {
			furthest = max(furthest, a.GetApplied())
		}
	}
	for i, m := range members {
		resp.Members = append(resp.Members, member(m, answers[i], furthest))
	}
	return resp, nil
}

// ask has all members identify themselves, at once. Those that do not answer in
// time, or are somebody else, are nil.
func (c *cluster) ask(ctx context.Context, members []Member, self *dtaskv1.IdentifyResponse) []*dtaskv1.IdentifyResponse {
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	answers := make([]*dtaskv1.IdentifyResponse, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		if m.ID == c.cfg.ServerID {
			answers[i] = self
			continue
		}
		asking.Go(func() {
			a, err := c.cfg.Peers.Identify(ctx, m.Address)
			if err == nil && a.GetServerId() == m.ID && !foreign(a, self) {
				answers[i] = a
			}
		})
	}
	asking.Wait()
	return answers
}

// foreign reports whether two replicas know that they are of different clusters.
func foreign(a, b *dtaskv1.IdentifyResponse) bool {
	return a.GetClusterId() != "" && b.GetClusterId() != "" && a.GetClusterId() != b.GetClusterId()
}

// leaderOf finds the leader among the answers: of several that think so, the one
// with the highest term; nil if none does.
func leaderOf(answers []*dtaskv1.IdentifyResponse) *dtaskv1.IdentifyResponse {
	var leader *dtaskv1.IdentifyResponse
	for _, a := range answers {
		if a.GetState() == memberLeader && (leader == nil || a.GetTerm() > leader.GetTerm()) {
			leader = a
		}
	}
	return leader
}

// member shows a member by its answer, which is nil if there was none.
func member(m Member, a *dtaskv1.IdentifyResponse, furthest uint64) *dtaskv1.Member {
	view := &dtaskv1.Member{Id: m.ID, Address: m.Address, State: memberUnreachable, Voter: m.Voter}
	switch a.GetState() {
	case memberLeader, memberFollower, memberCandidate:
		view.State = a.GetState()
	case stateStarting: // it looks for its cluster
		view.State = memberCandidate
	default:
		return view
	}
	view.Applied, view.Version, view.HttpAddress = a.GetApplied(), a.GetVersion(), a.GetHttpAddress()
	view.Lag = furthest - min(furthest, a.GetApplied())
	return view
}

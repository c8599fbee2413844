package membership

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// identifyTimeout is how long a replica may take to identify itself before it counts
// as unreachable.
const identifyTimeout = time.Second

// States of a member in Status.
const (
	memberLeader      = "leader"
	memberFollower    = "follower"
	memberCandidate   = "candidate"
	memberUnreachable = "unreachable"
	// memberHalted is a process that answers and does not run Raft: its alarms say why.
	memberHalted = "halted"
)

// Status implements ClusterService. It needs no leader: it asks every member, and
// the leader is a member that reports to lead.
func (s *Service) Status(ctx context.Context, _ *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	members := s.Members()
	if len(members) == 0 { // Raft does not run yet
		members = []raftnode.Server{{ID: s.cfg.ServerID}}
	} else {
		s.cfg.Peers.retain(members)
	}
	self := s.identify()
	answers := s.askMembers(ctx, members, self)
	leader := leaderOf(answers)

	level, _ := s.level()
	resp := &dtaskv1.StatusResponse{
		Level:     uint32(level),
		Name:      s.clusterName(),
		Leader:    leader.GetServerId(),
		ClusterId: self.GetClusterId(), Replica: s.cfg.ServerID,
	}
	// The lag is measured in applied entries: raft's own entries, which are never
	// applied, may stay at the end of the leader's log for days.
	furthest := leader.GetApplied()
	for _, a := range answers {
		resp.Term = max(resp.GetTerm(), a.GetTerm())
		if leader == nil {
			furthest = max(furthest, a.GetApplied())
		}
	}
	for i, m := range members {
		member := memberStatus(m, answers[i], furthest)
		member.LagMs = s.lagMS(member, leader.GetWallMs())
		resp.Members = append(resp.Members, member)
		resp.Alarms = append(resp.Alarms, s.alarmsOf(m, answers[i])...)
	}
	if auth.RightIn(ctx, dtaskv1.ClusterService_Status_FullMethodName) != auth.Full {
		hideHTTP(resp)
	}
	return resp, nil
}

// lagMS returns for how long a member lags by the leader's wall clock: since the entry that it
// applies next. It is nil if that is unknown, because the member does not answer, or this
// replica has not applied that entry either, or has forgotten when it did.
func (s *Service) lagMS(m *dtaskv1.Member, wallMS int64) *int64 {
	if m.GetState() == memberUnreachable {
		return nil
	}
	if m.GetLag() == 0 {
		return new(int64(0))
	}
	at, known := s.cfg.Machine.NextEntry(m.GetApplied())
	if !known || wallMS == 0 {
		return nil
	}
	return new(max(wallMS-at, 0))
}

// hideHTTP removes the addresses and disks of the members, which only operators need.
func hideHTTP(resp *dtaskv1.StatusResponse) {
	for _, m := range resp.GetMembers() {
		m.HttpAddress, m.DiskFree, m.DiskSize = "", 0, 0
	}
}

// askMembers asks all members at once to identify themselves. The result is nil for
// those that do not answer in time, or are other servers.
func (s *Service) askMembers(
	ctx context.Context, members []raftnode.Server, self *dtaskv1.IdentifyResponse, opts ...grpc.CallOption,
) []*dtaskv1.IdentifyResponse {
	answers := s.cfg.Peers.IdentifyAll(ctx, members, s.cfg.ServerID, identifyTimeout, opts...)
	for i, m := range members {
		if m.ID == s.cfg.ServerID {
			answers[i] = self
		} else if isForeign(answers[i], self) {
			answers[i] = nil
		}
	}
	return answers
}

// MemberCertificate is what a member says of its certificate; Own is nil if it does not
// answer.
type MemberCertificate struct {
	ServerID, Address string
	Own               *dtaskv1.OwnCertificate
}

// Certificates asks all members for their certificates.
func (s *Service) Certificates(ctx context.Context) []MemberCertificate {
	members := s.Members()
	list := make([]MemberCertificate, 0, len(members))
	for i, answer := range s.askMembers(ctx, members, s.identify()) {
		list = append(list, MemberCertificate{members[i].ID, members[i].Address, answer.GetCertificate()})
	}
	return list
}

// isForeign reports whether two replicas are known to belong to different clusters.
func isForeign(a, b *dtaskv1.IdentifyResponse) bool {
	return a.GetClusterId() != "" && b.GetClusterId() != "" && a.GetClusterId() != b.GetClusterId()
}

// leaderOf finds the leader among the answers: of several, the one with the highest
// term; nil without one.
func leaderOf(answers []*dtaskv1.IdentifyResponse) *dtaskv1.IdentifyResponse {
	var leader *dtaskv1.IdentifyResponse
	for _, a := range answers {
		if a.GetState() == memberLeader && (leader == nil || a.GetTerm() > leader.GetTerm()) {
			leader = a
		}
	}
	return leader
}

// memberStatus shows a member with its answer, which may be nil.
func memberStatus(m raftnode.Server, a *dtaskv1.IdentifyResponse, furthest uint64) *dtaskv1.Member {
	view := &dtaskv1.Member{Id: m.ID, Address: m.Address, State: memberUnreachable, Voter: m.Voter}
	switch a.GetState() {
	case memberLeader, memberFollower, memberCandidate:
		view.State = a.GetState()
	case stateStarting:
		view.State = memberCandidate
		if slices.ContainsFunc(a.GetAlarms(), func(a *dtaskv1.Alarm) bool { return a.GetKind() == AlarmHistoryConflict }) {
			view.State = memberHalted
		}
	default:
		return view
	}
	view.Applied, view.Version, view.HttpAddress = a.GetApplied(), a.GetVersion(), a.GetHttpAddress()
	view.MinLevel, view.MaxLevel = a.GetMinLevel(), a.GetMaxLevel()
	view.TlsNotAfter = a.GetCertificate().GetExpiresAt()
	view.DiskFree, view.DiskSize, view.HistoryImport = a.GetDiskFree(), a.GetDiskSize(), a.GetHistoryImport()
	view.Lag = furthest - min(furthest, a.GetApplied())
	return view
}

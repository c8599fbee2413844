package raftnode

import (
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// view reads where raft stands at this replica.
type view struct {
	raft *raft.Raft
	self string // this replica's server id
}

// State returns leader, follower, candidate or shutdown.
func (v *view) State() string { return strings.ToLower(v.raft.State().String()) }

// Leading reports whether this replica is the leader, as far as it knows. Another one
// may have been elected already; ReadIndex finds out.
func (v *view) Leading() bool { return v.raft.State() == raft.Leader }

// leadsTerm reports whether this replica is the leader of a term.
func (v *view) leadsTerm(term uint64) bool { return v.Leading() && v.raft.CurrentTerm() == term }

// sendsTo reports whether this replica is the leader of a term in which another is a
// member.
func (v *view) sendsTo(term uint64, id raft.ServerID) bool {
	return v.leadsTerm(term) && slices.ContainsFunc(v.raft.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.ID == id
	})
}

// leadsWithOthers reports whether this replica leads and its own vote is not a
// majority.
func (v *view) leadsWithOthers() bool {
	return v.Leading() && slices.ContainsFunc(v.raft.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && string(s.ID) != v.self
	})
}

// Leader returns the leader's server id and address, or "" for both while it is
// unknown. A follower forgets its leader after Config.Heartbeat without contact.
func (v *view) Leader() (id, address string) {
	addr, server := v.raft.LeaderWithID()
	return string(server), string(addr)
}

// follows reports whether this replica knows no leader but the given one.
func (v *view) follows(leader string) bool {
	if s := v.raft.State(); s == raft.Leader || s == raft.Shutdown {
		return false
	}
	id, _ := v.Leader()
	return id == "" || id == leader
}

// Term returns the current term.
func (v *view) Term() uint64 { return v.raft.CurrentTerm() }

// LastIndex returns the index of the last entry of the log or the snapshot.
func (v *view) LastIndex() uint64 { return v.raft.LastIndex() }

// CommitIndex returns the highest index known to be committed.
func (v *view) CommitIndex() uint64 { return v.raft.CommitIndex() }

// LastContact returns when this follower last heard from a leader; the zero time if
// never.
func (v *view) LastContact() time.Time { return v.raft.LastContact() }

// Servers returns the latest configuration, which may not be committed yet.
func (v *view) Servers() []Server {
	var servers []Server
	for _, s := range v.raft.GetConfiguration().Configuration().Servers {
		servers = append(servers, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// otherVoters returns the voters except this one and one other, and whether this
// replica is a voter.
func (v *view) otherVoters(except string) (others []Server, isVoter bool) {
	for _, s := range v.Servers() {
		switch {
		case !s.Voter || s.ID == except:
		case s.ID == v.self:
			isVoter = true
		default:
			others = append(others, s)
		}
	}
	return others, isVoter
}

// notLeader returns a NotLeaderError with the leader that is known now.
func (v *view) notLeader() error {
	id, addr := v.Leader()
	if id == v.self { // this replica won or lost leadership since the refusal
		id, addr = "", ""
	}
	return &NotLeaderError{LeaderID: id, LeaderAddr: addr}
}

package raftnode

import (
	"context"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

// silenceChecks is how often a voter checks for the leader's silence within one
// heartbeat timeout.
const silenceChecks = 20

// silence replaces a leader that is frozen or cut off: its process lives and its
// connections stay, but nothing comes from it. Raft finds out, too, but each voter
// waits for a random time of one to two heartbeat timeouts, and no voter grants a
// pre-vote before its own time is over: an election begins after 1.7 timeouts on
// average. Here a voter that has heard nothing for one heartbeat timeout
//
//	asks the other voters ──► fewer than a majority have heard nothing for as long: ask
//	     │                    again at the next check
//	     ▼ a majority, including this one, and none of them has stood
//	waits rank × rankDelay, checks and asks again, and stands, as in failover
//
// A leader that no majority has heard from for a heartbeat timeout has been without
// its lease, which is shorter, so that it would depose itself. Times in which this
// process did not run don't count: a voter that was stopped knows nothing about its
// leader, and all processes of a machine may be stopped at once.
type silence struct {
	*failover

	mu      sync.Mutex // guards what follows
	leader  Server     // the last one that was known in this term
	term    uint64
	contact time.Time     // last contact with it
	quiet   time.Duration // time since then in which this process ran
	checked time.Time     // last check
}

// run checks until ctx is done.
func (s *silence) run(ctx context.Context) {
	ticker := time.NewTicker(s.heartbeat / silenceChecks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if leader, term, silent := s.check(time.Now()); silent {
			s.replaceSilent(ctx, leader, term)
		}
	}
}

// check observes the leader, and reports whether it has been silent for a heartbeat
// timeout.
func (s *silence) check(now time.Time) (leader Server, term uint64, silent bool) {
	current, contact := s.Term(), s.LastContact()
	var known Server
	known.ID, known.Address = s.Leader()
	s.mu.Lock()
	defer s.mu.Unlock()
	ran := min(now.Sub(s.checked), 2*s.heartbeat/silenceChecks)
	s.checked = now
	switch {
	case current != s.term || !contact.Equal(s.contact) || known.ID != "" && known != s.leader:
		s.leader, s.term, s.contact, s.quiet = known, current, contact, 0
	default:
		s.quiet += ran
	}
	return s.leader, s.term, s.leader.ID != "" && s.leader.ID != s.self && s.quiet >= s.heartbeat
}

// silent reports whether the leader of a term has been silent for almost a heartbeat
// timeout: the voters heard from it last at slightly different times.
func (s *silence) silent(leader string, term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader.ID == leader && s.term == term && s.quiet >= s.heartbeat-4*s.heartbeat/silenceChecks
}

// answerSilent answers another voter to which the leader of a term is silent.
func (s *silence) answerSilent(leader string, term uint64) transport.AnswerCode {
	if s.Term() > term || s.stoodIn.Load() >= term {
		return transport.AnswerWait
	}
	if s.follows(leader) && s.silent(leader, term) {
		return transport.AnswerYes
	}
	return transport.AnswerNo
}

// replaceSilent stands for election if a majority agrees that the leader is silent.
func (s *silence) replaceSilent(ctx context.Context, leader Server, term uint64) {
	mayStand := func() bool {
		return s.Term() == term && s.stoodIn.Load() < term && s.follows(leader.ID) && s.silent(leader.ID, term) && !s.space.critical.Load()
	}
	if !mayStand() {
		return
	}
	rank, agreed := s.consult(ctx, transport.AskLeaderSilent, leader, term)
	if agreed && rank > 0 {
		if !sleep(ctx, time.Duration(rank)*rankDelay) {
			return
		}
		_, agreed = s.consult(ctx, transport.AskLeaderSilent, leader, term)
	}
	if !agreed || !mayStand() {
		return
	}
	s.stoodIn.Store(term)
	s.elections.Add(1)
	s.log.InfoContext(ctx, "leader is silent; starting election", "leader", leader.ID, "term", term, "rank", rank)
	if err := s.stand(); err != nil {
		s.log.WarnContext(ctx, "starting an election failed", "err", err)
	}
}

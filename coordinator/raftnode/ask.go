package raftnode

import (
	"context"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

// voterAnswer is what a voter answered.
type voterAnswer struct {
	Server
	transport.Answer
}

// askVoters asks all voters concurrently and returns the answers of those that answered
// in time.
func askVoters(ctx context.Context, t *transport.Transport, voters []Server, q transport.Question) []voterAnswer {
	var mu sync.Mutex // guards answers
	var answers []voterAnswer
	var asking sync.WaitGroup
	for _, s := range voters {
		asking.Go(func() {
			a, err := t.Ask(ctx, transport.Peer{ID: s.ID, Address: s.Address}, q)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, voterAnswer{s, a})
		})
	}
	asking.Wait()
	return answers
}

// keepLinks keeps connections to the other voters open while this replica is a voter,
// until ctx is done: elections wait for them.
func (n *Node) keepLinks(ctx context.Context) {
	ticker := time.NewTicker(n.cfg.TimeScale.Scale(membershipInterval))
	defer ticker.Stop()
	for {
		var peers []transport.Peer
		if others, isVoter := n.otherVoters(""); isVoter {
			for _, s := range others {
				peers = append(peers, transport.Peer{ID: s.ID, Address: s.Address})
			}
		}
		n.transport.KeepLinks(ctx, peers)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// RenewLinks is that of transport.Transport, for all other servers.
func (n *Node) RenewLinks(ctx context.Context, creds *transport.PeerCredentials) (left int) {
	var peers []transport.Peer
	for _, s := range n.Servers() {
		if s.ID != n.view.self {
			peers = append(peers, transport.Peer{ID: s.ID, Address: s.Address})
		}
	}
	return n.transport.RenewLinks(ctx, peers, creds)
}

// answer answers a question of another voter.
func (n *Node) answer(q transport.Question) transport.Answer {
	if !n.isRunning() {
		return transport.Answer{Code: transport.AnswerNo}
	}
	a := transport.Answer{Code: transport.AnswerNo, LastIndex: n.LastIndex()}
	switch q.Kind {
	case transport.AskLeaderLost:
		ctx, cancel := context.WithTimeout(context.Background(), n.transport.AskTimeout()/2)
		defer cancel()
		a.Code = n.failover.answer(ctx, q.Server, q.Term)
	case transport.AskLeaderSilent:
		a.Code = n.silence.answerSilent(q.Server, q.Term)
	case transport.AskNoLeader:
		return n.firstElection.answer(q.Server, q.Term)
	case transport.AskDiskSpace:
		if !n.space.low.Load() {
			a.Code = transport.AnswerYes
		}
	}
	return a
}

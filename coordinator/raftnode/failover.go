package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/timescale"
)

const (
	// rankDelay is how long a voter lets each voter with a longer log stand before it.
	rankDelay = 30 * time.Millisecond
	// watchRetryDelay is the delay after a watch connection could not be opened.
	watchRetryDelay = 250 * time.Millisecond
	// membershipInterval is how often a replica without a vote checks whether it has
	// one: membership may change without a change of leader.
	membershipInterval = time.Second
	// The delay between two probes of a leader that may be dead doubles between these.
	firstProbeDelay, maxProbeDelay = 2 * time.Millisecond, 50 * time.Millisecond
)

// failover is the fast path of a failover. When the leader's process exits, raft finds
// out after a timeout. Its port reveals it sooner: every voter keeps an idle watch
// connection to it. When that breaks, the voter
//
//	dials again ──► answered: a broken link, continue watching
//	     │ refused, and no Raft connection from the leader is left
//	     ▼
//	asks the other voters ──► fewer than a majority have lost it too: dial again
//	     │ a majority, including this one, has, and none of them has stood yet
//	     ▼
//	waits rank × rankDelay, so that voters with a longer log stand first, and checks and
//	     │ nothing has changed                                          asks again
//	     ▼
//	stands for election, once per term
//
// A leader that a majority can neither reach nor hear has lost its quorum, so no
// healthy leader is deposed, however many links are reset. Only "connection refused"
// counts: a vanished host, a pause or a partition is left to silence and to raft's
// timeouts, as is every case that this path gives up on.
type failover struct {
	*view

	transport *transport.Transport
	space     *spaceMonitor
	advertise string
	heartbeat time.Duration
	timeScale timescale.Factor
	log       *slog.Logger

	watching    atomic.Bool                // a watch connection to the leader is up
	refused     atomic.Pointer[lostLeader] // set while probes of the leader are refused
	stoodIn     atomic.Uint64              // last term in which this replica stood
	watchesLost atomic.Uint64
	elections   atomic.Uint64 // started by this path
	abandoned   atomic.Uint64 // probes that led to no election in time
}

// lostLeader is a leader whose port has refused the last probe.
type lostLeader struct {
	id      string
	contact time.Time // last contact with it, before the probe
}

// run watches the leader until ctx is done.
func (f *failover) run(ctx context.Context) {
	changed := make(chan raft.Observation, 1) // size 1: one pending signal is enough
	observer := raft.NewObserver(changed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	f.raft.RegisterObserver(observer)
	defer f.raft.DeregisterObserver(observer)
	for ctx.Err() == nil {
		leader, ok := f.watchable()
		delay := f.timeScale.Scale(watchRetryDelay)
		if !ok {
			delay = f.timeScale.Scale(membershipInterval)
		} else if f.watch(ctx, leader, changed) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(delay):
		}
	}
}

// watchable returns the leader, if it is another replica and this one is a voter.
func (f *failover) watchable() (leader Server, ok bool) {
	leader.ID, leader.Address = f.Leader()
	if leader.ID == "" || leader.ID == f.self {
		return leader, false
	}
	_, isVoter := f.otherVoters(leader.ID)
	return leader, isVoter
}

// watch keeps a connection to the leader while it leads. It returns false if none could
// be opened: the caller waits before it tries again.
func (f *failover) watch(ctx context.Context, leader Server, changed <-chan raft.Observation) bool {
	conn, err := f.transport.Watch(ctx, leader.ID, leader.Address)
	if err != nil {
		return false
	}
	for conn != nil {
		f.watching.Store(true)
		broken := f.waitBroken(ctx, conn, leader, changed)
		f.watching.Store(false)
		if !broken {
			return true
		}
		f.watchesLost.Add(1)
		conn = f.probe(ctx, leader)
	}
	return false
}

// waitBroken returns true when conn breaks, and false when the leader changes or ctx is
// done. It closes conn.
func (f *failover) waitBroken(ctx context.Context, conn net.Conn, leader Server, changed <-chan raft.Observation) bool {
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		_, _ = conn.Read(make([]byte, 1)) // nothing is ever sent: only the end matters
	}()
	defer func() {
		_ = conn.Close()
		<-broken
	}()
	for {
		select {
		case <-broken:
			return f.follows(leader.ID)
		case <-ctx.Done():
			return false
		case <-changed:
			if now, ok := f.watchable(); !ok || now != leader {
				return false
			}
		}
	}
}

// probe finds out what a broken watch connection means. It returns a new one if the
// leader is reachable, and nil if this replica has stood for election, another one
// leads, or raft's own timeout is due.
func (f *failover) probe(ctx context.Context, leader Server) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, f.heartbeat)
	defer cancel()
	defer f.refused.Store(nil)
	for delay := firstProbeDelay; f.follows(leader.ID); delay = min(2*delay, f.timeScale.Scale(maxProbeDelay)) {
		contact := f.LastContact()
		conn, err := f.transport.Watch(ctx, leader.ID, leader.Address)
		if err == nil {
			return conn
		}
		f.refused.Store(nil)
		if errors.Is(err, syscall.ECONNREFUSED) {
			f.refused.Store(&lostLeader{leader.ID, contact})
			if f.replace(ctx, leader) {
				return nil
			}
		}
		if !sleep(ctx, delay) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && f.follows(leader.ID) {
				f.abandoned.Add(1)
			}
			return nil
		}
	}
	return nil
}

// replace stands for election if a majority agrees that the leader, whose port has just
// refused a connection, is gone.
func (f *failover) replace(ctx context.Context, leader Server) bool {
	term, contact := f.Term(), f.LastContact()
	if f.space.critical.Load() || f.stoodIn.Load() >= term || f.transport.HasConnectionFrom(leader.ID) {
		return false
	}
	rank, agreed := f.consult(ctx, transport.AskLeaderLost, leader, term)
	if !agreed {
		return false
	}
	if rank > 0 {
		if !sleep(ctx, time.Duration(rank)*rankDelay) || !f.refuses(ctx, leader) {
			return false
		}
		if _, agreed = f.consult(ctx, transport.AskLeaderLost, leader, term); !agreed {
			return false
		}
	}
	if f.Term() != term || !f.LastContact().Equal(contact) || !f.follows(leader.ID) || f.transport.HasConnectionFrom(leader.ID) {
		return false
	}
	f.stoodIn.Store(term)
	f.elections.Add(1)
	f.log.InfoContext(ctx, "leader process exited; starting election", "leader", leader.ID, "term", term, "rank", rank)
	if err := f.stand(); err != nil {
		f.log.WarnContext(ctx, "starting an election failed", "err", err)
	}
	return true
}

// stand makes raft stand for election now, as a leader does that transfers leadership
// to it.
func (f *failover) stand() error {
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	return f.transport.TimeoutNow(raft.ServerID(f.self), raft.ServerAddress(f.advertise), request, &raft.TimeoutNowResponse{})
}

// consult asks the other voters whether they have lost the leader too, in the way that
// the question describes. They agree if, with this one, they are a majority and no
// election is in progress. The rank is how many of them have a longer log.
func (f *failover) consult(ctx context.Context, kind transport.QuestionKind, leader Server, term uint64) (rank int, agreed bool) {
	others, isVoter := f.otherVoters(leader.ID)
	if !isVoter {
		return 0, false
	}
	index, lost, election := f.LastIndex(), 1, false
	for _, a := range askVoters(ctx, f.transport, others, transport.Question{Kind: kind, Term: term, Server: leader.ID}) {
		election = election || a.Code == transport.AnswerWait
		if a.Code != transport.AnswerYes {
			continue
		}
		lost++
		if a.LastIndex > index || (a.LastIndex == index && a.ID < f.self) {
			rank++
		}
	}
	return rank, !election && lost > (len(others)+2)/2 // the voters are the others, this one and the leader
}

// answer answers another voter that has lost the leader of a term.
func (f *failover) answer(ctx context.Context, leader string, term uint64) transport.AnswerCode {
	if f.Term() > term || f.stoodIn.Load() >= term {
		return transport.AnswerWait
	}
	contact := f.LastContact()
	if !f.follows(leader) || f.transport.HasConnectionFrom(leader) {
		return transport.AnswerNo
	}
	if r := f.refused.Load(); r != nil && r.id == leader && r.contact.Equal(contact) {
		return transport.AnswerYes // another dial would take a round trip
	}
	for _, s := range f.Servers() {
		if s.ID == leader && f.refuses(ctx, s) && f.LastContact().Equal(contact) && f.follows(leader) && !f.transport.HasConnectionFrom(leader) {
			return transport.AnswerYes
		}
	}
	return transport.AnswerNo
}

// refuses reports whether nothing listens at a server's address.
func (f *failover) refuses(ctx context.Context, server Server) bool {
	conn, err := f.transport.Watch(ctx, server.ID, server.Address)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// sleep waits; it returns false when ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

package raftnode

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
)

// The fast path of a failover. A leader whose process dies is gone at once, and raft
// finds out after a time-out. Its port tells sooner: every voter keeps an idle watch
// connection to it. When that breaks, the voter
//
//	dials again ──► answered: a broken link, nothing more
//	     │ refused, and no Raft connection of the leader is left
//	     ▼
//	asks the other voters ──► fewer than a majority have lost it too: dials again
//	     │ a majority, this one counted, has, and none of them has stood yet
//	     ▼
//	waits, rank × rankWait, since those with a longer log come first, and looks and
//	     │ all is as before                                          asks once more
//	     ▼
//	stands for election, once a term
//
// A leader that a majority can neither reach nor hear has lost its quorum, so no
// healthy one is deposed, however many links are reset. Only "connection refused"
// counts: a host that vanished, a pause or a partition is left to the time-outs, and
// so is everything that this path gives up on.
const (
	// rankWait is how long a voter lets each one that is ahead of it begin.
	rankWait = 30 * time.Millisecond
	// watchAgain is the pause after a watch connection could not be opened.
	watchAgain = 250 * time.Millisecond
	// Pauses between two looks at a leader that may be dead.
	firstLook, lastLook = 2 * time.Millisecond, 50 * time.Millisecond
)

// watchLoop watches the leader until the node is closed.
func (n *Node) watchLoop() {
	ctx, cancel := n.untilClosing()
	defer cancel()
	changed := make(chan raft.Observation, 1) // size 1: one signal says all
	observer := raft.NewObserver(changed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	for ctx.Err() == nil {
		leader, ok := n.watchable()
		again := n.cfg.TimeScale.Scale(watchAgain)
		if ok {
			if n.watch(ctx, leader, changed) {
				continue
			}
		} else {
			again = n.cfg.TimeScale.Scale(time.Second) // membership may make this one a voter without a change of leader
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// untilClosing is a context that ends when the node is being closed.
func (n *Node) untilClosing() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	n.work.Go(func() {
		defer cancel()
		select {
		case <-n.closing:
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// watchable returns the leader, if it is another and this replica is a voter.
func (n *Node) watchable() (leader Server, ok bool) {
	leader.ID, leader.Address = n.Leader()
	own := n.cfg.Identity.Get().ServerID
	if leader.ID == "" || leader.ID == own {
		return leader, false
	}
	_, self := n.voters(leader.ID)
	return leader, self
}

// voters returns the voters but this one and one other, and whether this is one.
func (n *Node) voters(except string) (others []Server, self bool) {
	own := n.cfg.Identity.Get().ServerID
	for _, s := range n.Servers() {
		switch {
		case !s.Voter || s.ID == except:
		case s.ID == own:
			self = true
		default:
			others = append(others, s)
		}
	}
	return others, self
}

// watch keeps a connection to the leader while it leads. It returns false if there
// was none to keep: then the caller waits before it tries again.
func (n *Node) watch(ctx context.Context, leader Server, changed <-chan raft.Observation) bool {
	conn, err := n.transport.Watch(ctx, leader.ID, leader.Address)
	if err != nil {
		return false
	}
	for conn != nil {
		n.watching.Store(true)
		broken := n.broken(ctx, conn, leader, changed)
		n.watching.Store(false)
		if !broken {
			return true
		}
		n.counters.watchesLost.Add(1)
		conn = n.suspect(ctx, leader)
	}
	return false
}

// broken returns true when conn breaks, and false when the leader is another or the
// node closes. In any case conn is closed when it returns.
func (n *Node) broken(ctx context.Context, conn net.Conn, leader Server, changed <-chan raft.Observation) bool {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = conn.Read(make([]byte, 1)) // nothing is ever sent: only its end matters
	}()
	defer func() {
		_ = conn.Close()
		<-over
	}()
	for {
		select {
		case <-over:
			return n.follows(leader.ID)
		case <-ctx.Done():
			return false
		case <-changed:
			if now, ok := n.watchable(); !ok || now != leader {
				return false
			}
		}
	}
}

// follows says that this replica knows no leader but the given one.
func (n *Node) follows(leader string) bool {
	if s := n.raft.State(); s == raft.Leader || s == raft.Shutdown {
		return false
	}
	id, _ := n.Leader()
	return id == "" || id == leader
}

// suspect finds out what a broken watch means. It returns a new one if the leader is
// there, and nil if this replica has stood for election, another one leads, or the
// time is up in which it is faster than raft.
func (n *Node) suspect(ctx context.Context, leader Server) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Heartbeat)
	defer cancel()
	for pause := firstLook; n.follows(leader.ID); pause = min(2*pause, n.cfg.TimeScale.Scale(lastLook)) {
		conn, err := n.transport.Watch(ctx, leader.ID, leader.Address)
		if err == nil {
			return conn
		}
		if errors.Is(err, syscall.ECONNREFUSED) && n.replace(ctx, leader) {
			return nil
		}
		if !sleep(ctx, pause) {
			return nil
		}
	}
	return nil
}

// replace stands for election if all agree that the leader, whose port has just
// refused a connection, is gone.
func (n *Node) replace(ctx context.Context, leader Server) bool {
	term, contact := n.Term(), n.LastContact()
	if n.shortSpace.Load() || n.stoodIn.Load() >= term || n.transport.HasConnectionFrom(leader.ID) {
		return false
	}
	rank, agreed := n.consult(ctx, leader, term)
	if !agreed {
		return false
	}
	if rank > 0 {
		if !sleep(ctx, time.Duration(rank)*rankWait) || !n.refuses(ctx, leader) {
			return false
		}
		if _, agreed = n.consult(ctx, leader, term); !agreed {
			return false
		}
	}
	if n.Term() != term || !n.LastContact().Equal(contact) || !n.follows(leader.ID) || n.transport.HasConnectionFrom(leader.ID) {
		return false
	}
	n.stoodIn.Store(term)
	n.counters.quickElections.Add(1)
	n.log.InfoContext(ctx, "the leader's process is gone, standing for election", "leader", leader.ID, "term", term, "rank", rank)
	if err := n.stand(); err != nil {
		n.log.WarnContext(ctx, "standing for election at once failed", "err", err)
	}
	return true
}

// stand makes raft stand for election now, as a leader that hands over would.
func (n *Node) stand() error {
	self := raft.ServerID(n.cfg.Identity.Get().ServerID)
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	return n.transport.TimeoutNow(self, raft.ServerAddress(n.cfg.Advertise), request, &raft.TimeoutNowResponse{})
}

// consult asks the other voters whether they have lost the leader too. They agree if
// with this one they are a majority, and no election is under way; rank is how many of
// them are ahead of it.
func (n *Node) consult(ctx context.Context, leader Server, term uint64) (rank int, agreed bool) {
	others, self := n.voters(leader.ID)
	if !self {
		return 0, false
	}
	own, index := n.cfg.Identity.Get().ServerID, n.LastIndex()
	var mu sync.Mutex // guards what follows
	lost, election := 1, false
	var asked sync.WaitGroup
	for _, s := range others {
		asked.Go(func() {
			a, err := n.transport.Ask(ctx, s.ID, s.Address, transport.Question{Kind: transport.QuestionLost, Number: term, Server: leader.ID})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
			case a.Verdict == transport.AnswerLater:
				election = true
			case a.Verdict == transport.AnswerYes:
				lost++
				if a.Number > index || (a.Number == index && s.ID < own) {
					rank++
				}
			}
		})
	}
	asked.Wait()
	return rank, !election && lost > (len(others)+2)/2 // the voters are the others, this one and the leader
}

// lost answers another voter that has lost the leader of a term.
func (n *Node) lost(ctx context.Context, leader string, term uint64) (verdict byte) {
	if n.Term() > term || n.stoodIn.Load() >= term {
		return transport.AnswerLater
	}
	contact := n.LastContact()
	if !n.follows(leader) || n.transport.HasConnectionFrom(leader) {
		return transport.AnswerNo
	}
	for _, s := range n.Servers() {
		if s.ID == leader && n.refuses(ctx, s) && n.LastContact().Equal(contact) && n.follows(leader) && !n.transport.HasConnectionFrom(leader) {
			return transport.AnswerYes
		}
	}
	return transport.AnswerNo
}

// refuses says that nobody listens where a server should.
func (n *Node) refuses(ctx context.Context, server Server) bool {
	conn, err := n.transport.Watch(ctx, server.ID, server.Address)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// answer answers a peer's question on a watch connection.
func (n *Node) answer(q transport.Question) transport.Answer {
	r := n.running.Load()
	if r == nil {
		return transport.Answer{Verdict: transport.AnswerNo}
	}
	a := transport.Answer{Verdict: transport.AnswerNo, Number: r.LastIndex()}
	switch q.Kind {
	case transport.QuestionLost:
		ctx, cancel := context.WithTimeout(context.Background(), transport.AskTimeout/2)
		defer cancel()
		a.Verdict = n.lost(ctx, q.Server, q.Number)
	case transport.QuestionBegun:
		return n.begun(q.Server, q.Number)
	case transport.QuestionSpace:
		if !n.LowSpace() {
			a.Verdict = transport.AnswerYes
		}
	}
	return a
}

// sleep waits; it returns false when ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

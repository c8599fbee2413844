package transport

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// pair is a replica that keeps links, and the peer at their other end, which answers
// yes to everything.
type pair struct {
	*server
	peer  *server
	other Peer
	dials atomic.Int64
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{
		server: newServer(t, Preface{ServerID: "n1", Instance: "i1", ClusterID: "c"}, nil),
		peer:   newServer(t, Preface{ServerID: "n2", Instance: "i2", ClusterID: "c"}, nil),
	}
	p.other = Peer{"n2", p.peer.address}
	p.peer.stream.answer = func(q Question) Answer { return Answer{Code: AnswerYes, LastIndex: q.Term} }
	p.peer.mux.Attach(p.peer.Transport)
	p.stream.serverAt = func(raft.ServerAddress) (string, bool) { return "n2", true }
	p.stream.dial = func(ctx context.Context, address string) (net.Conn, error) {
		p.dials.Add(1)
		return DialTCP(ctx, address)
	}
	return p
}

// keep opens the links, and returns how many dials that took.
func (p *pair) keep(t *testing.T, peers ...Peer) (dials int64) {
	t.Helper()
	before := p.dials.Load()
	p.KeepLinks(t.Context(), peers)
	return p.dials.Load() - before
}

// breakAll breaks all connections at the peer's end, and returns when this end knows.
func (p *pair) breakAll() {
	for noted(p.peer.stream) < noted(p.stream) { // the peer notes a connection after it has replied
		runtime.Gosched()
	}
	p.peer.stream.mu.Lock()
	for conn := range p.peer.stream.conns {
		_ = conn.Conn.Close()
	}
	p.peer.stream.mu.Unlock()
	p.stream.links.readers.Wait()
}

// noted is how many connections a side has in its list.
func noted(s *streamLayer) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (p *pair) asks(t *testing.T, term uint64) {
	t.Helper()
	a, err := p.Ask(t.Context(), p.other, Question{Kind: AskLeaderLost, Term: term, Server: "n3"})
	if err != nil || a != (Answer{AnswerYes, term}) {
		t.Errorf("got %+v, %v, want yes at %d", a, err, term)
	}
}

func TestQuestionsAndRaftUseKeptConnections(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	if n := p.keep(t, p.other); n != 3 {
		t.Errorf("%d connections were opened, want 3", n)
	}
	if n := p.keep(t, p.other); n != 0 {
		t.Errorf("%d more connections were opened", n)
	}
	before := p.dials.Load()
	for term := range uint64(3) {
		p.asks(t, term)
	}
	var voting sync.WaitGroup
	voting.Go(func() {
		rpc := <-p.peer.Consumer()
		rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
	})
	var vote raft.RequestVoteResponse
	if err := p.RequestVote("n2", raft.ServerAddress(p.other.Address), &raft.RequestVoteRequest{}, &vote); err != nil || !vote.Granted {
		t.Errorf("asking for a vote: %+v, %v", vote, err)
	}
	voting.Wait()
	if n := p.dials.Load() - before; n != 0 {
		t.Errorf("%d dials for what the kept connections are for", n)
	}
	if n := p.keep(t, p.other); n != 1 {
		t.Errorf("%d connections were opened to replace one", n)
	}
}

func TestAKeptConnectionThatBrokeIsNotUsed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.keep(t, p.other)
	p.breakAll()
	p.asks(t, 1)
	if n := p.keep(t, p.other); n != 2 {
		t.Errorf("%d connections were opened; want two for raft, as the question's is kept", n)
	}
}

func TestLinksToAServerThatIsNoPeerAreClosed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.keep(t, p.other)
	p.stream.links.measured(p.other.ID, time.Second)
	p.keep(t)
	p.stream.links.readers.Wait()
	if p.RoundTrip() != 0 {
		t.Errorf("the round trip to a server that is no peer counts: %v", p.RoundTrip())
	}
	p.asks(t, 1)
	if n := p.stream.links.count(watchMagic, p.other); n != 0 {
		t.Errorf("%d connections to a server that is no peer are kept", n)
	}
}

func TestAQuestionMayTakeLongerTheFartherThePeersAre(t *testing.T) {
	t.Parallel()
	l := links{peers: make(map[Peer]bool), roundTrips: make(map[string]time.Duration)}
	for _, c := range []struct{ near, far, want time.Duration }{
		{0, 0, 150 * time.Millisecond},
		{0, 40 * time.Millisecond, 350 * time.Millisecond},
		{40 * time.Millisecond, 10 * time.Millisecond, 350 * time.Millisecond},
		{0, time.Minute, 500 * time.Millisecond},
	} {
		l.measured("n2", c.near)
		l.measured("n3", c.far)
		if got := l.askTimeout(); got != c.want {
			t.Errorf("with round trips of %v and %v: got %v, want %v", c.near, c.far, got, c.want)
		}
	}
}

package raftnode

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// holdFor is how long one replication request waits for its peer to
	// come back.
	holdFor = 30 * time.Second
	// lookAgain is how often it looks.
	lookAgain = 50 * time.Millisecond
)

// patientTransport keeps a peer that comes back from waiting for its log.
//
// Raft doubles the pause after each request that fails, up to ten seconds, and
// nothing ends a pause early. A replica that was down for a minute would so get
// nothing for up to ten seconds after it is back, and with another one down the
// cluster would stand still although a majority is alive. Here a failed request
// is repeated until it succeeds, the term is over or its patience is; raft sees
// one slow request instead of many failed ones. Requests are idempotent.
// Heartbeats are not held: their pauses are short, and their failures are how
// raft finds out.
type patientTransport struct {
	*raft.NetworkTransport

	send func(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error
	// leads says whether a request of a term still comes from the leader; nil
	// until raft runs.
	leads  atomic.Pointer[func(term uint64) bool]
	closed chan struct{} // closed by Close: nobody waits any more
	once   sync.Once
}

func newPatientTransport(t *raft.NetworkTransport) *patientTransport {
	return &patientTransport{NetworkTransport: t, send: t.AppendEntries, closed: make(chan struct{})}
}

// AppendEntries implements raft.Transport.
func (t *patientTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := alive(func() error { return t.send(id, target, args, resp) })
	if err == nil || isHeartbeat(args) {
		return err
	}
	limit := time.NewTimer(holdFor)
	defer limit.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-limit.C:
			return err
		case <-t.closed:
			return err
		}
		if leads := t.leads.Load(); leads == nil || !(*leads)(args.Term) {
			return err
		}
		*resp = raft.AppendEntriesResponse{}
		if err = alive(func() error { return t.send(id, target, args, resp) }); err == nil {
			return nil
		}
	}
}

// RequestVote implements raft.Transport. A vote that is asked for twice by one
// candidate is given twice.
func (t *patientTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return alive(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t *patientTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return alive(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// alive makes a request and repeats it at once when its connection turns out to be
// dead. Raft's pool keeps connections to what a peer was before it restarted, and
// raft asks for a vote only once: a peer that is there would not be heard in the
// election in which it counts.
func alive(request func() error) error {
	err := request()
	for range maxPool { // each try takes one out of the pool
		if !deadConnection(err) {
			break
		}
		err = request()
	}
	return err
}

func deadConnection(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// Close ends all waiting and closes the transport below.
func (t *patientTransport) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.NetworkTransport.Close()
}

// isHeartbeat tells a heartbeat as raft itself does.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

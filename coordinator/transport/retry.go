package transport

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// retryInterval is the delay between two tries of a request.
const retryInterval = 50 * time.Millisecond

// AppendEntries implements raft.Transport. It delays a request that carries nothing
// new, retries one that fails, and records what the peer has stored.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	t.waitForNews(id, args)
	if err := t.sendWithRetry(id, target, args, resp); err != nil {
		return err
	}
	t.record(id, args, resp.Success)
	if n := len(args.Entries); n > 0 && resp.Success && t.log != nil {
		return t.log.WaitStored(args.Entries[n-1].Index) // see logstore.ParallelLog
	}
	return nil
}

// errDeposed is the error of a request of a term in which this replica no longer leads,
// or to a peer that it has removed.
var errDeposed = errors.New("no longer the leader of the request's term, or the peer was removed")

// sendWithRetry sends a replication request until it succeeds, the term ends or the peer
// is no longer a member.
//
// It sends nothing if this replica was deposed while the request was made: raft reads
// an entry and the one before it in two steps, and in between the next leader's entries
// may have replaced them. The request would then connect entries of two logs. As long
// as this replica leads, no entry was replaced.
//
// Raft doubles the delay after each failed request, up to ten seconds, and nothing ends
// a delay early. A replica that was down for a minute would receive nothing for up to
// ten seconds after its return; with a second replica down, the cluster would stop
// although a majority is up. With retries raft sees one slow request instead of many
// failed ones, however long the replica is down. Requests are idempotent. Heartbeats are not retried: their delays are
// short, and raft detects failures by them.
func (t *Transport) sendWithRetry(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !isHeartbeat(args) && !t.maySend(args.Term, id) {
		return errDeposed
	}
	err := reconnect(func() error { return t.send(id, target, args, resp) })
	if err == nil || isHeartbeat(args) {
		return err
	}
	next := time.NewTicker(t.timeScale.Scale(retryInterval))
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-t.closed:
			return err
		}
		if !t.maySend(args.Term, id) {
			return err
		}
		*resp = raft.AppendEntriesResponse{}
		if err = reconnect(func() error { return t.send(id, target, args, resp) }); err == nil {
			return nil
		}
	}
}

// maySend reports whether this replica still leads in a term and the peer is a member,
// or raft has just started.
func (t *Transport) maySend(term uint64, to raft.ServerID) bool {
	sends := t.sends.Load()
	return sends == nil || (*sends)(term, to)
}

// RequestVote implements raft.Transport. A peer that is asked twice by one candidate
// grants its vote twice.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return reconnect(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return reconnect(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// reconnect makes a request and repeats it immediately if its connection turns out to
// be closed. Raft's pool keeps connections to a peer that has restarted since, and raft
// asks for a vote only once: a reachable peer would not count in the election.
func reconnect(request func() error) error {
	err := request()
	for range maxPool { // each try takes one connection out of the pool
		if !isConnectionClosed(err) {
			break
		}
		err = request()
	}
	return err
}

func isConnectionClosed(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed},
		func(closed error) bool { return errors.Is(err, closed) })
}

// isHeartbeat recognizes a heartbeat in the same way as raft.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

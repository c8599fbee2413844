package transport

import (
	"errors"
	"io"
	"net"
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
	// repeat is how often a peer that knows all is told so again.
	repeat = 100 * time.Millisecond
)

// A Transport keeps a peer that comes back from waiting for its log.
//
// Raft doubles the pause after each request that fails, up to ten seconds, and
// nothing ends a pause early. A replica that was down for a minute would so get
// nothing for up to ten seconds after it is back, and with another one down the
// cluster would stand still although a majority is alive. Here a failed request
// is repeated until it succeeds, the term is over or its patience is; raft sees
// one slow request instead of many failed ones. Requests are idempotent.
// Heartbeats are not held: their pauses are short, and their failures are how
// raft finds out.

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	t.rest(id, args)
	if err := t.append(id, target, args, resp); err != nil {
		return err
	}
	t.note(id, args, resp.Success)
	if n := len(args.Entries); n > 0 && resp.Success && t.log != nil {
		return t.log.WaitStored(args.Entries[n-1].Index) // see Log
	}
	return nil
}

// note keeps what a server's answer to a request says.
func (t *Transport) note(id raft.ServerID, args *raft.AppendEntriesRequest, success bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard[id] = time.Now()
	if !success || isHeartbeat(args) {
		return
	}
	t.told[id] = newsOf(args)
	last := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		last = args.Entries[n-1].Index
	}
	t.claims[id] = t.claims[id].next(args.Term, last, args.LeaderCommitIndex)
}

// news is what a request without entries tells.
type news struct{ term, last, commit uint64 }

func newsOf(a *raft.AppendEntriesRequest) news {
	return news{a.Term, a.PrevLogEntry, a.LeaderCommitIndex}
}

// rest holds a request back that tells nothing new, until there is news or its time has
// come. Raft repeats itself every few milliseconds, so that followers learn of a commit
// soon; in a cluster at rest that is most of what a leader does. Nothing is answered in
// the peer's place, and heartbeats are not held: leases and reads stay what they are.
// What a request waited for goes with it, and not behind its answer.
func (t *Transport) rest(id raft.ServerID, args *raft.AppendEntriesRequest) {
	if t.log == nil || len(args.Entries) > 0 || isHeartbeat(args) || args.PrevLogEntry != args.LeaderCommitIndex {
		return
	}
	t.mu.Lock()
	told := t.told[id]
	t.mu.Unlock()
	last, changed := t.log.Newest()
	if told != newsOf(args) || last != args.PrevLogEntry {
		return
	}
	limit := time.NewTimer(t.timeScale.Scale(repeat))
	defer limit.Stop()
	select {
	case <-changed:
		args.Entries = t.since(args)
	case <-limit.C:
	case <-t.closed:
	}
}

// since are the entries that the leader of a request's term has appended behind it. Of
// another term there may be some if this replica was deposed while the request rested:
// then its log need not be what it was when the request was made, and these are another
// leader's to send. An entry of the term itself only its leader makes, behind all that
// it had before.
func (t *Transport) since(args *raft.AppendEntriesRequest) (logs []*raft.Log) {
	last, _ := t.log.Newest()
	for index := args.PrevLogEntry + 1; index <= last && len(logs) < t.maxAppend; index++ {
		log := new(raft.Log)
		if t.log.GetLog(index, log) != nil || log.Term != args.Term {
			break
		}
		logs = append(logs, log)
	}
	return logs
}

// LastContact returns when a server last answered; the zero time if never.
func (t *Transport) LastContact(id raft.ServerID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard[id]
}

// DurableIndex returns an index up to which a server has stored all that is committed,
// as it said to this replica; 0 if it said nothing. The commit index must be read
// before the term.
func (t *Transport) DurableIndex(id raft.ServerID, commit, term uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[id]
	if c.term == term {
		c.sure = max(c.sure, min(c.last, commit))
		t.claims[id] = c
	}
	return c.sure
}

// claim is what a server says it has stored. Of what this replica sent it as the leader
// of a term, only what was committed by then is stored for good: the rest may be
// replaced by another leader's entries, and be missing for a while.
type claim struct {
	term, last uint64 // the last entry that it has of this term's leader
	sure       uint64 // what it has for good
}

// next is the claim after a server has stored all up to an entry.
func (c claim) next(term, last, commit uint64) claim {
	if c.term == term {
		last = max(last, c.last)
	}
	return claim{term, last, max(c.sure, min(last, commit))}
}

func (t *Transport) append(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := alive(func() error { return t.send(id, target, args, resp) })
	if err == nil || isHeartbeat(args) {
		return err
	}
	limit := time.NewTimer(t.timeScale.Scale(holdFor))
	defer limit.Stop()
	look := time.NewTicker(t.timeScale.Scale(lookAgain))
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
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return alive(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
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

// isHeartbeat tells a heartbeat as raft itself does.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

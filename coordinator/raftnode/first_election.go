package raftnode

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/timescale"
)

// The first election after a start. Raft starts as a follower and waits one to two
// heartbeat timeouts for a leader before it stands for election. If all replicas start,
// after a power loss or in a new cluster, no leader exists, and the other voters can
// confirm it:
//
//	asks the other voters ──► one knows a leader: stop, raft will hear from it
//	     │                    too few answer, or an election is in progress: ask again
//	     ▼
//	a majority, including this replica, has just started and knows no leader
//	     │ and no log is longer than this one's
//	     ▼
//	stands for election, once
//
// It stands as raft does by itself, with a pre-vote and without the right to depose a
// leader: it only omits the wait. Outdated answers are therefore harmless, and raft's
// own timeout covers every case that this path gives up on. A replica that returns
// alone learns of the leader and does nothing.
type firstElection struct {
	*view

	transport *transport.Transport
	space     *spaceMonitor
	heartbeat time.Duration
	timeScale timescale.Factor
	log       *slog.Logger

	// Where this replica stood when raft started. Until it hears from a leader or
	// votes, this holds.
	term, lastIndex, lastTerm uint64

	mu     sync.Mutex      // guards what follows
	askers map[string]bool // voters that have asked this one
	stood  bool            // from now on an asker must wait
	asked  chan struct{}   // size 1: signals a new asker

	count atomic.Uint64 // elections started
}

// record notes where the replica stands. No peer has reached it yet.
func (f *firstElection) record() {
	stats := f.raft.Stats()
	logTerm, _ := strconv.ParseUint(stats["last_log_term"], 10, 64) // raft formats a number
	snapshotTerm, _ := strconv.ParseUint(stats["last_snapshot_term"], 10, 64)
	f.term, f.lastIndex, f.lastTerm = f.Term(), f.LastIndex(), max(logTerm, snapshotTerm)
	f.askers, f.asked = make(map[string]bool), make(chan struct{}, 1)
}

// run stands for election when a majority has started, unless a leader exists or raft's
// own timeout was faster.
func (f *firstElection) run(ctx context.Context) {
	for delay := firstProbeDelay; f.hasNoLeader() && f.raft.State() == raft.Follower; delay = min(2*delay, f.timeScale.Scale(maxProbeDelay)) {
		result, answered := f.poll(ctx)
		switch {
		case result == pollLed:
			return
		case result != pollFirst || f.space.critical.Load() || !f.hasNoLeader() || ctx.Err() != nil:
		case f.mayStand(answered):
			f.stand(ctx)
			return
		default:
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-f.asked: // another replica has started
			delay = firstProbeDelay
		case <-time.After(delay):
		}
	}
}

// hasNoLeader reports whether this replica has had no leader and has not voted since it
// started. It may be waiting, or be a candidate that received no pre-vote.
func (f *firstElection) hasNoLeader() bool {
	id, _ := f.Leader()
	s := f.raft.State()
	return id == "" && f.Term() == f.term && f.LastContact().IsZero() && (s == raft.Follower || s == raft.Candidate)
}

// addAsker records that a voter asks, and reports whether this replica has stood.
func (f *firstElection) addAsker(voter string) (stood bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.askers[voter] {
		f.askers[voter] = true
		select {
		case f.asked <- struct{}{}:
		default: // a signal is pending
		}
	}
	return f.stood
}

// mayStand reports whether this replica may stand after a poll: every voter that this
// replica answered while it waited has answered the poll. Another replica that started
// during the poll and has a longer log would stand as well, and the two would split the
// votes.
func (f *firstElection) mayStand(answered map[string]bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	missed := false
	for voter := range f.askers {
		if !answered[voter] {
			delete(f.askers, voter) // the next poll asks it; it may be gone again
			missed = true
		}
	}
	f.stood = f.stood || !missed
	return !missed
}

// stand ends raft's wait for a leader. Raft's timeout was set one nanosecond too long
// for that: raft checks again when it becomes shorter.
func (f *firstElection) stand(ctx context.Context) {
	f.count.Add(1)
	f.log.InfoContext(ctx, "a majority has started without a leader; starting election", "term", f.term)
	shorter := f.raft.ReloadableConfig()
	shorter.HeartbeatTimeout = f.heartbeat
	if err := f.raft.ReloadConfig(shorter); err != nil {
		f.log.WarnContext(ctx, "starting an election failed", "err", err)
	}
}

// pollResult is the result of asking the voters.
type pollResult int

const (
	pollEarly pollResult = iota // too few answer, one has a longer log, or an election is in progress
	pollLed                     // a voter knows a leader
	pollFirst                   // a majority knows none, and this replica should stand
)

// poll asks the other voters whether they know a leader, and returns which of them
// answered.
func (f *firstElection) poll(ctx context.Context) (result pollResult, answered map[string]bool) {
	others, isVoter := f.otherVoters("")
	answered = make(map[string]bool)
	if !isVoter {
		return pollLed, answered // without a vote, wait for a leader
	}
	agree, led, wait := 1, false, false
	for _, a := range askVoters(ctx, f.transport, others, transport.Question{Kind: transport.AskNoLeader, Term: f.lastTerm, Server: f.self}) {
		answered[a.ID] = true
		switch {
		case a.Code == transport.AnswerNo:
			led = true
		case a.Code == transport.AnswerWait, a.Code == transport.AnswerNewerLog,
			a.Code == transport.AnswerYes && (a.LastIndex > f.lastIndex || a.LastIndex == f.lastIndex && a.ID < f.self):
			wait = true
		default:
			agree++
		}
	}
	switch {
	case led:
		return pollLed, answered
	case wait || agree <= (len(others)+1)/2:
		return pollEarly, answered
	default:
		return pollFirst, answered
	}
}

// answer answers another voter that has just started and whose last entry has a term.
func (f *firstElection) answer(asker string, lastTerm uint64) transport.Answer {
	stood := f.addAsker(asker)
	a := transport.Answer{Code: transport.AnswerYes, LastIndex: f.lastIndex}
	id, _ := f.Leader()
	_, isVoter := f.otherVoters("")
	switch {
	case id != "" || f.Leading() || !isVoter:
		a.Code = transport.AnswerNo
	case stood || !f.hasNoLeader():
		a.Code = transport.AnswerWait
	case f.space.critical.Load(): // it does not stand
		a.Code = transport.AnswerOlderLog
	case f.lastTerm > lastTerm:
		a.Code = transport.AnswerNewerLog
	case f.lastTerm < lastTerm:
		a.Code = transport.AnswerOlderLog
	}
	return a
}

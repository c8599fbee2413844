package raftnode

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
)

// The first election after a start. Raft begins as a follower and listens for a leader
// for one to two heartbeat time-outs before it stands for election. Where all replicas
// begin, after a loss of power or in a new cluster, there is none to be heard, and the
// other voters can say so:
//
//	asks the other voters ──► one knows a leader: nothing more, it will be heard
//	     │                    fewer than a majority are there, or an election is under way: asks again
//	     ▼
//	a majority, this one counted, has just begun, and knows no leader
//	     │ and no log is longer than this one's
//	     ▼
//	stands for election, once
//
// It stands as raft does by itself, with a pre-vote and without the right to depose
// anybody: all that is left out is the waiting. So nothing is at stake when the answers
// are old, and what this path gives up on is left to raft's time-out. A replica that
// comes back alone is told of the leader, and does nothing.

// beginning is how a replica stood when raft began. While it has neither heard a leader
// nor voted since, nothing of it has changed.
type beginning struct {
	term        uint64 // the current one
	index, last uint64 // the last entry and its term

	mu     sync.Mutex      // guards what follows
	askers map[string]bool // voters that have asked this one
	stood  bool            // from then on whoever asks is told to wait
	asked  chan struct{}   // size 1: there is a new one among them
}

// ask notes that a voter asks, and says whether this one has stood.
func (b *beginning) ask(voter string) (stood bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.askers[voter] {
		b.askers[voter] = true
		select {
		case b.asked <- struct{}{}:
		default: // one signal says all
		}
	}
	return b.stood
}

// stand says whether this replica may stand after a poll: everybody who was told that it
// waits has answered it. Another that began during the poll, and is ahead, would stand as
// well, and the two split the votes.
func (b *beginning) stand(heard map[string]bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	missed := false
	for voter := range b.askers {
		if !heard[voter] {
			delete(b.askers, voter) // it is asked now, and may be gone again
			missed = true
		}
	}
	b.stood = b.stood || !missed
	return !missed
}

// begin notes how the replica stands. Nothing has come from the others yet.
func (n *Node) begin() {
	stats := n.raft.Stats()
	number := func(name string) uint64 {
		v, _ := strconv.ParseUint(stats[name], 10, 64) // raft made it of a number
		return v
	}
	n.began.term, n.began.index = number("term"), n.LastIndex()
	n.began.last = max(number("last_log_term"), number("last_snapshot_term"))
}

// unled says whether this replica has heard no leader since it began, and voted for
// none. It may be waiting, or stand without having been given a pre-vote.
func (n *Node) unled() bool {
	id, _ := n.Leader()
	s := n.raft.State()
	return id == "" && n.Term() == n.began.term && n.LastContact().IsZero() && (s == raft.Follower || s == raft.Candidate)
}

// beginLoop stands for election once a majority has begun, unless somebody leads or
// raft's own time-out was faster.
func (n *Node) beginLoop() {
	ctx, cancel := n.untilClosing()
	defer cancel()
	for pause := firstLook; n.unled() && n.raft.State() == raft.Follower; pause = min(2*pause, n.cfg.TimeScale.Scale(lastLook)) {
		poll, heard := n.poll(ctx)
		switch {
		case poll == pollLed:
			return
		case poll != pollFirst || n.shortSpace.Load() || !n.unled() || ctx.Err() != nil:
		case n.began.stand(heard):
			n.standFirst(ctx)
			return
		default:
			continue
		}
		again := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-n.began.asked: // another has begun
			pause = firstLook
		case <-again.C:
		}
		again.Stop()
	}
}

// standFirst ends raft's wait for a leader. Raft's time-out was made one nanosecond too
// long for that: it looks anew when it becomes shorter.
func (n *Node) standFirst(ctx context.Context) {
	n.counters.firstElections.Add(1)
	n.log.InfoContext(ctx, "a majority has begun and knows no leader, standing for election", "term", n.began.term)
	shorter := n.raft.ReloadableConfig()
	shorter.HeartbeatTimeout = n.cfg.Heartbeat
	if err := n.raft.ReloadConfig(shorter); err != nil {
		n.log.WarnContext(ctx, "standing for election at once failed", "err", err)
	}
}

// What a poll of the voters found out.
const (
	pollEarly = iota // fewer than a majority are there, one of them is ahead, or an election is under way
	pollLed          // somebody knows a leader
	pollFirst        // a majority knows none, and this one is to stand
)

// poll asks the other voters whether they know a leader. Heard are those that answered.
func (n *Node) poll(ctx context.Context) (poll int, heard map[string]bool) {
	others, self := n.voters("")
	heard = make(map[string]bool)
	if !self {
		return pollLed, heard // who has no vote waits until there is one
	}
	own := n.cfg.Identity.Get().ServerID
	var mu sync.Mutex // guards what follows
	agree, led, wait := 1, false, false
	var asked sync.WaitGroup
	for _, s := range others {
		asked.Go(func() {
			a, err := n.transport.Ask(ctx, s.ID, s.Address, transport.Question{Kind: transport.QuestionBegun, Number: n.began.last, Server: own})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				return
			}
			heard[s.ID] = true
			switch {
			case a.Verdict == transport.AnswerNo:
				led = true
			case a.Verdict == transport.AnswerLater, a.Verdict == transport.AnswerAhead,
				a.Verdict == transport.AnswerYes && (a.Number > n.began.index || a.Number == n.began.index && s.ID < own):
				wait = true
			default:
				agree++
			}
		})
	}
	asked.Wait()
	switch {
	case led:
		return pollLed, heard
	case wait || agree <= (len(others)+1)/2:
		return pollEarly, heard
	default:
		return pollFirst, heard
	}
}

// begun answers another voter that has just begun, and whose last entry is of a term.
func (n *Node) begun(asker string, last uint64) transport.Answer {
	stood := n.began.ask(asker)
	a := transport.Answer{Verdict: transport.AnswerYes, Number: n.began.index}
	id, _ := n.Leader()
	_, self := n.voters("")
	switch {
	case id != "" || n.Leading() || !self:
		a.Verdict = transport.AnswerNo
	case stood || !n.unled():
		a.Verdict = transport.AnswerLater
	case n.shortSpace.Load(): // it does not stand
		a.Verdict = transport.AnswerBehind
	case n.began.last > last:
		a.Verdict = transport.AnswerAhead
	case n.began.last < last:
		a.Verdict = transport.AnswerBehind
	}
	return a
}

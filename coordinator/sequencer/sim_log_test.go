package sequencer_test

import (
	"bytes"
	"errors"
	"time"

	"github.com/dtask/dtask/fsm"
)

// simLog is what Raft promises and no more: one sequence of committed entries.
// What a leader proposed may be lost, delayed, or committed by the next leader
// after the proposer has given it up; replicas apply it in their own time.
type simLog struct {
	c        *sim
	entries  [][]byte // the one with index i+1 at i
	digests  []uint64 // after each
	replicas [3]*simReplica
	truth    *fsm.Machine // of the replica that has applied everything
	late     [][]byte     // given up by a leader; the next may commit the first ones
	slow     time.Time    // until when the log takes its time
}

func newSimLog(c *sim) *simLog {
	l := &simLog{c: c}
	for i := range l.replicas {
		l.replicas[i] = &simReplica{log: l, number: i, machine: fsm.NewMachine()}
	}
	l.truth = l.replicas[0].machine
	return l
}

// latency is how long an entry takes to be committed.
func (l *simLog) latency() time.Duration {
	if time.Now().Before(l.slow) {
		return l.c.upTo(2 * time.Second)
	}
	return l.c.upTo(l.c.opts.Latency)
}

// commit makes an entry part of the sequence and applies it at a replica that
// has applied all before.
func (l *simLog) commit(r *simReplica, data []byte, late bool, order uint64) any {
	e, err := fsm.Decode(data)
	if err != nil {
		l.c.fail("an entry cannot be decoded: %v", err)
		return err
	}
	after := l.c.before(e, late, order)
	l.entries = append(l.entries, data)
	r.applied++
	l.c.note("commit", r.applied, uint64(len(data)))
	response := r.machine.Apply(r.applied, data)
	applied, ok := response.(fsm.Applied)
	if !ok {
		l.c.fail("entry %d is not applied: %v", r.applied, response)
		return response
	}
	l.digests = append(l.digests, applied.Digest)
	after(applied)
	return response
}

// simReplica is one replica's state machine.
type simReplica struct {
	log      *simLog
	number   int
	machine  *fsm.Machine
	applied  uint64
	snapshot []byte // nil: none
	term     *simTerm
}

// follow applies up to n committed entries, and compares.
func (r *simReplica) follow(n int) {
	for ; n > 0 && r.applied < uint64(len(r.log.entries)); n-- {
		r.applied++
		response := r.machine.Apply(r.applied, r.log.entries[r.applied-1])
		r.log.c.note("apply", uint64(r.number), r.applied)
		if applied, ok := response.(fsm.Applied); !ok || applied.Digest != r.log.digests[r.applied-1] {
			r.log.c.fail("replica %d differs at entry %d: %+v, want digest %x", r.number, r.applied, response, r.log.digests[r.applied-1])
			return
		}
	}
}

// catchUp applies all that is committed.
func (r *simReplica) catchUp() { r.follow(len(r.log.entries)) }

func (r *simReplica) persist() []byte {
	var out bytes.Buffer
	if err := r.machine.Snapshot().Persist(&out); err != nil {
		r.log.c.fail("persisting a snapshot: %v", err)
	}
	return out.Bytes()
}

// take keeps a snapshot.
func (r *simReplica) take() {
	r.snapshot = r.persist()
	r.log.c.note("snapshot", uint64(r.number), r.applied)
}

// restore makes the state that a snapshot holds; nil is the empty one.
func (r *simReplica) restore(snapshot []byte) {
	r.machine, r.applied = fsm.NewMachine(), 0
	if snapshot != nil {
		if err := r.machine.Restore(bytes.NewReader(snapshot)); err != nil {
			r.log.c.fail("restoring a snapshot: %v", err)
			return
		}
		r.applied = r.machine.Index()
		if again := r.persist(); !bytes.Equal(again, snapshot) {
			r.log.c.fail("the snapshot of a restored snapshot differs")
		}
	}
	r.log.c.note("restore", uint64(r.number), r.applied)
}

// restart is a crash: what is left is the last snapshot, and the log.
func (r *simReplica) restart() { r.restore(r.snapshot) }

// install is what a leader does with a follower that is far behind.
func (r *simReplica) install(from *simReplica) {
	r.snapshot = from.persist()
	r.restore(r.snapshot)
}

// simProposal is an entry on its way.
type simProposal struct {
	data     []byte
	order    uint64 // of all proposals
	done     chan struct{}
	settled  bool
	response any
	index    uint64
	err      error
}

// Wait implements sequencer.Proposal.
func (p *simProposal) Wait() (any, uint64, error) {
	<-p.done
	return p.response, p.index, p.err
}

// Settled implements sequencer.Settled.
func (p *simProposal) Settled() bool { return p.settled }

func (p *simProposal) settle(response any, index uint64, err error) {
	p.response, p.index, p.err, p.settled = response, index, err, true
	close(p.done)
}

var errUnknown = errors.New("leadership lost while the entry was on its way")

package sequencer_test

import (
	"bytes"
	"errors"
	"time"

	"github.com/dtask/dtask/fsm"
)

// simLog has the guarantees of Raft and no more: one sequence of committed
// entries. A proposal may be lost, delayed, or committed by the next leader
// after the proposer has reported an unknown outcome. Replicas apply entries at
// any time.
type simLog struct {
	c        *sim
	entries  [][]byte // index i+1 is at i
	digests  []uint64 // after each
	replicas [3]*simReplica
	truth    *fsm.Machine // a replica that has applied everything
	late     [][]byte     // of unknown outcome; the next leader may commit the first ones
	slow     time.Time    // the log is slow until then
}

func newSimLog(c *sim) *simLog {
	l := &simLog{c: c}
	for i := range l.replicas {
		l.replicas[i] = &simReplica{log: l, number: i, machine: fsm.NewMachine()}
	}
	l.truth = l.replicas[0].machine
	return l
}

// latency returns the time that an entry takes to be committed.
func (l *simLog) latency() time.Duration {
	if time.Now().Before(l.slow) {
		return l.c.upTo(2 * time.Second)
	}
	return l.c.upTo(l.c.opts.Latency)
}

// commit appends an entry to the sequence and applies it to an up-to-date
// replica.
func (l *simLog) commit(r *simReplica, data []byte, late bool, order uint64) any {
	e, err := fsm.Decode(data)
	if err != nil {
		l.c.fail("decoding an entry: %v", err)
		return err
	}
	after := l.c.before(e, late, order, data)
	l.entries = append(l.entries, data)
	r.applied++
	l.c.note("commit", r.applied, uint64(len(data)))
	response := r.machine.Apply(r.applied, data)
	applied, ok := response.(fsm.Applied)
	if !ok {
		l.c.fail("entry %d was not applied: %v", r.applied, response)
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

// follow applies up to n committed entries and compares the digests.
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

// catchUp applies all committed entries.
func (r *simReplica) catchUp() { r.follow(len(r.log.entries)) }

func (r *simReplica) persist() []byte {
	var out bytes.Buffer
	if err := r.machine.Snapshot().Persist(&out); err != nil {
		r.log.c.fail("persisting a snapshot: %v", err)
	}
	return out.Bytes()
}

// take takes a snapshot.
func (r *simReplica) take() {
	r.snapshot = r.persist()
	r.log.c.note("snapshot", uint64(r.number), r.applied)
}

// restore restores a snapshot; nil is the empty state.
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

// restart is a crash: only the last snapshot and the log are left.
func (r *simReplica) restart() { r.restore(r.snapshot) }

// install installs a snapshot, as a leader does on a follower that is far
// behind.
func (r *simReplica) install(from *simReplica) {
	r.snapshot = from.persist()
	r.restore(r.snapshot)
}

// simProposal is an entry in flight.
type simProposal struct {
	data     []byte
	order    uint64 // of all proposals
	at       time.Time
	began    time.Time // when its batch began
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

var errUnknown = errors.New("leadership lost while the entry was in flight")

package simulation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

var (
	errDisk = errors.New("input/output error")
	errGone = errors.New("the process that writes was killed")
)

// writes are kinds of writes to a store.
type writes int

const (
	entryWrites writes = 1 << iota // to the log
	termWrites                     // of the term
	voteWrites                     // of the vote, both parts
	otherWrites                    // of what else is known by a key, such as the committed index
	allWrites   = entryWrites | termWrites | voteWrites | otherWrites
)

// writesOf returns the kind of a write of a key's value.
func writesOf(key []byte) writes {
	switch string(key) {
	case "CurrentTerm":
		return termWrites
	case "LastVote":
		return voteWrites
	}
	return otherWrites
}

// disk injects faults into a replica's store; they affect the process that runs.
type disk struct {
	mu      sync.Mutex // guards the following fields
	rng     *rand.Rand
	fail    bool // the next write fails
	flip    bool // the next entry that is read has a flipped bit
	stalled *stall
}

// stall lets some writes hang.
type stall struct {
	which   writes
	arrived chan struct{} // closed when the first write hangs
	once    sync.Once
	over    chan struct{} // closed at the end
}

// fate returns the outcome of a write, and what it has to wait for before, if anything.
func (d *disk) fate(which writes) (hang <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.stalled; s != nil && s.which&which != 0 {
		s.once.Do(func() { close(s.arrived) })
		hang = s.over
	}
	if d.fail {
		d.fail, err = false, errDisk
	}
	return hang, err
}

// stall lets writes hang until the returned function is called.
func (d *disk) stall(which writes) (s *stall, end func()) {
	s = &stall{which: which, arrived: make(chan struct{}), over: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled = s
	return s, sync.OnceFunc(func() {
		d.mu.Lock()
		d.stalled = nil
		d.mu.Unlock()
		close(s.over)
	})
}

// await returns when a write hangs, and reports false if none does within a time.
func (s *stall) await(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-s.arrived:
		return true
	case <-ctx.Done():
		return false
	}
}

// heal ends all faults except a stall, whose owner ends it.
func (d *disk) heal() { d.set(false, false) }

func (d *disk) set(fail, flip bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.flip = fail, flip
}

// gate is what a process's writes to its store pass. The zero value is unusable; see
// newGate.
type gate struct {
	mu     sync.Mutex // guards the following fields
	shut   bool       // no write passes
	hang   map[chan bool]struct{}
	opened chan struct{} // closed when the process is gone: all writes fail
}

func newGate() *gate { return &gate{hang: make(map[chan bool]struct{}), opened: make(chan struct{})} }

// kill shuts the gate, so that nothing more is written and no write returns, and
// decides which of the writes that hang are on the disk. All goroutines of the bubble
// but the caller's wait.
func (g *gate) kill(kept func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for fate := range g.hang {
		fate <- kept()
	}
}

// end lets all writes fail, in progress or later.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOver() {
		close(g.opened)
	}
	g.shut = true
}

func (g *gate) isOver() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// pass does a write, after it has waited for the end of hang.
func (g *gate) pass(hang <-chan struct{}, write func() error) error {
	fate := make(chan bool, 1) // kill sends once and never waits
	g.mu.Lock()
	shut := g.shut
	if hang != nil && !shut {
		g.hang[fate] = struct{}{}
	}
	g.mu.Unlock()
	kept := false
	switch {
	case shut:
	case hang == nil:
		return write()
	default:
		select {
		case <-hang:
			g.mu.Lock()
			delete(g.hang, fate)
			shut = g.shut
			g.mu.Unlock()
			if !shut {
				return write()
			}
		case kept = <-fate:
		case <-g.opened:
		}
	}
	if kept {
		_ = write() // nobody learns of it
	}
	<-g.opened
	return errGone
}

// wrap wraps the store of a process.
func (p *process) wrap(b logstore.Backend) logstore.Backend { return &faultyStore{b, p} }

type faultyStore struct {
	logstore.Backend
	process *process
}

func (s *faultyStore) write(which writes, do func() error) error {
	if s.process.gate.isOver() {
		return errGone
	}
	hang, failure := s.process.r.disk.fate(which)
	return s.process.gate.pass(hang, func() error {
		if failure != nil {
			return failure
		}
		return do()
	})
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	return s.write(entryWrites, func() error { return s.Backend.StoreLogs(logs) })
}

func (s *faultyStore) DeleteRange(first, last uint64) error {
	return s.process.gate.pass(nil, func() error { return s.Backend.DeleteRange(first, last) })
}

func (s *faultyStore) Set(key, value []byte) error {
	return s.write(writesOf(key), func() error { return s.Backend.Set(key, value) })
}

func (s *faultyStore) GetLog(index uint64, log *raft.Log) error {
	if err := s.Backend.GetLog(index, log); err != nil {
		return err
	}
	d := s.process.r.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flip && len(log.Data) > 0 && !s.process.gate.isOver() {
		d.flip = false
		log.Data[d.rng.IntN(len(log.Data))] ^= 1 << d.rng.IntN(8)
	}
	return nil
}

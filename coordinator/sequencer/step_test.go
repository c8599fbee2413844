package sequencer

import (
	"errors"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Stepped is a term whose caller moves it on, instead of the two goroutines of
// Run: the same parts in one goroutine, so that a simulation can be repeated
// exactly. Its log's proposals implement Settled.
type Stepped struct {
	s        *Sequencer
	flight   []inFlight
	failure  error
	stopping bool
	over     bool
}

// Settled is a proposal that can tell whether its Wait would return at once.
type Settled interface{ Settled() bool }

var errStopped = errors.New("stopped in an orderly way")

// Stepped opens the term.
func (s *Sequencer) Stepped() *Stepped {
	s.openTerm()
	return &Stepped{s: s}
}

// Stop begins an orderly end: nothing new is proposed, what is on its way is
// waited for.
func (d *Stepped) Stop() { d.stopping = true }

// Step does all that can be done now. moved says that it did anything, err why
// the term has ended.
func (d *Stepped) Step() (moved bool, err error) {
	for again := true; again && !d.over; moved = moved || again {
		again = d.settle()
		switch {
		case d.failure != nil:
			for _, f := range d.flight {
				d.failure = d.s.pipe.settle(f, d.failure)
			}
			d.end()
			return true, d.s.pipe.failure
		case d.stopping && len(d.flight) == 0:
			d.end()
			return true, errStopped
		case d.stopping || !d.opened():
		default:
			again = d.cycle() || again
		}
	}
	return moved, nil
}

func (d *Stepped) opened() bool {
	select {
	case <-d.s.opened:
		return true
	default:
		return false
	}
}

func (d *Stepped) end() {
	d.over, d.flight = true, nil
	d.s.finish()
}

// settle lets out what follows the entries that are committed.
func (d *Stepped) settle() (moved bool) {
	d.take()
	for d.failure == nil && len(d.flight) > 0 {
		f := d.flight[0]
		if f.proposal != nil && !f.proposal.(Settled).Settled() {
			break
		}
		d.flight = d.flight[1:]
		d.failure = d.s.pipe.settle(f, nil)
		moved = true
	}
	return moved
}

func (d *Stepped) take() {
	for {
		select {
		case f := <-d.s.pipe.commits:
			d.flight = append(d.flight, f)
		default:
			return
		}
	}
}

// cycle makes an entry if there is work and room in the pipe.
func (d *Stepped) cycle() bool {
	select {
	case <-d.s.inbox.wake:
		d.s.more = true
	default:
	}
	if !d.s.hasWork() {
		return false
	}
	select {
	case d.s.pipe.slots <- struct{}{}:
		d.s.cycle()
		d.take()
		return true
	default:
		return false
	}
}

// Next is when the term wants to be moved on though nobody asks for anything.
func (d *Stepped) Next() time.Time { return time.Now().Add(d.s.untilNext()) }

// DrainingNow reports whether the term gives nothing more to a worker, as for
// HeldNow.
func (s *Sequencer) DrainingNow(id fsm.WorkerID) bool {
	w := s.workers.byID[id]
	return w != nil && w.leaving
}

// HeldNow is how many attempts the term believes to be held. The term's
// goroutines, if it has any, must be at rest.
func (s *Sequencer) HeldNow() int {
	n := 0
	for _, w := range s.workers.byID {
		n += w.held.len()
	}
	return n
}

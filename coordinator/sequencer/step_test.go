package sequencer

import (
	"errors"
	"testing/synctest"
	"time"
)

// Stepped is a term that runs in the goroutine of its caller, step by step,
// instead of the two goroutines of Run, so that a simulation can be repeated
// exactly. The proposals of its log implement Settled.
type Stepped struct {
	s        *Sequencer
	flight   []inFlight
	failure  error
	stopping bool
	over     bool
}

// Settled reports whether Wait of a proposal would return immediately.
type Settled interface{ Settled() bool }

var errStopped = errors.New("stopped")

// Stepped starts the term.
func (s *Sequencer) Stepped() *Stepped {
	s.openTerm()
	return &Stepped{s: s}
}

// Stop starts an orderly end: nothing is proposed any more, and entries in
// flight are awaited.
func (d *Stepped) Stop() { d.stopping = true }

// Step does everything that can be done now. moved reports whether it did
// anything; err is why the term has ended. It waits, in a synctest bubble, for what callers
// ask next when they are answered: it belongs to the next entry, or to a later one, however
// fast their goroutines are.
func (d *Stepped) Step() (moved bool, err error) {
	for again := true; again && !d.over; moved = moved || again {
		if moved {
			synctest.Wait()
		}
		if again = d.settle(); again {
			synctest.Wait()
		}
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

// settle sends the effects of committed entries.
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

// cycle proposes an entry if there is work, and a free slot in the pipeline.
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

// Next returns when the term must be stepped even without a request.
func (d *Stepped) Next() time.Time { return time.Now().Add(d.s.untilNext()) }

// HeldNow returns the number of attempts that workers hold. The term's
// goroutines, if it has any, must be idle.
func (s *Sequencer) HeldNow() int {
	n := 0
	for _, w := range s.workers.byID {
		n += w.held.len()
	}
	return n
}

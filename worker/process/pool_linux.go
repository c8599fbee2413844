package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stuckTimeout is how long after the grace the tree must be gone. Killing a
	// large tree on a busy machine takes one or two seconds; it takes longer only
	// if the supervisor was stopped, or a process is in an uninterruptible wait.
	stuckTimeout = 15 * time.Second
	// idleTimeout is how long a supervisor waits for its next program.
	idleTimeout = 10 * time.Second
)

// A Pool runs programs. It keeps the supervisors of programs that have ended
// for the next ones, because starting one costs several times as much as a
// small program. The zero Pool is ready for use; its methods may be called by
// any number of goroutines concurrently.
type Pool struct {
	// User runs the programs; nil is the worker's own user. It must not change after
	// the first program.
	User *User

	// Tests replace the two limits.
	stuckLimit, idleLimit time.Duration

	started, lost atomic.Uint64 // see PoolStats

	mu       sync.Mutex // guards the rest
	idle     []*handle  // the last one was used last
	closed   bool
	timer    *time.Timer    // ends supervisors that were idle for too long; nil until first needed
	armed    bool           // the timer runs
	expiries sync.WaitGroup // runs of the timer, armed or in progress
}

// Run starts the program under a supervisor and returns when the whole tree is
// gone.
//
// When ctx is done, all processes of the tree get SIGTERM and, after
// s.KillGrace, SIGKILL. The error then wraps context.Cause(ctx), beside a valid
// Exit if the program had started. It is nil if the program ended before the
// stop. The package comment describes the other errors.
func (p *Pool) Run(ctx context.Context, s Spec) (Exit, error) {
	if err := Ready(); err != nil {
		return Exit{}, err
	}
	if ctx.Err() != nil {
		return Exit{}, fmt.Errorf("stopped before start: %w", context.Cause(ctx))
	}
	start, err := s.order(p.User)
	if err != nil {
		return Exit{}, p.User.advise(err)
	}
	streams, err := openStdio(&s, p.User)
	if err != nil {
		return Exit{}, &SupervisorError{Err: fmt.Errorf("opening standard streams: %w", err)}
	}
	r := &run{spec: &s, start: start, streams: streams, limit: cmp.Or(p.stuckLimit, stuckTimeout)}
	exit, err := p.runUnderOne(ctx, r)
	streams.closeChild()
	if copyErr := streams.finish(); err == nil {
		err = copyErr
	}
	return exit, p.User.advise(err)
}

// runUnderOne gives the program to an idle supervisor, or to a new one. An idle
// one may have died meanwhile: then another one starts the program.
func (p *Pool) runUnderOne(ctx context.Context, r *run) (Exit, error) {
	for {
		h := p.take()
		reused := h != nil
		if !reused {
			var err error
			if h, err = startSupervisor(); err != nil {
				p.lost.Add(1)
				return Exit{}, &SupervisorError{Err: err}
			}
			p.started.Add(1)
		}
		exit, err := h.run(ctx, r)
		if _, lost := errors.AsType[*SupervisorError](err); lost {
			p.lost.Add(1)
		}
		p.put(h)
		if reused && errors.Is(err, errNotReceived) && ctx.Err() == nil {
			continue
		}
		return exit, err
	}
}

// take returns the supervisor that was used last, or nil.
func (p *Pool) take() *handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	h := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return h
}

// put keeps a supervisor for the next program, or ends it.
func (p *Pool) put(h *handle) {
	p.mu.Lock()
	keep := h.usable && !p.closed
	if keep {
		h.idleSince = time.Now()
		p.idle = append(p.idle, h)
		p.armLocked()
	}
	p.mu.Unlock()
	if !keep {
		h.end()
	}
}

// armLocked starts the timer unless it runs.
func (p *Pool) armLocked() {
	if p.armed {
		return
	}
	p.armed = true
	p.expiries.Add(1)
	limit := cmp.Or(p.idleLimit, idleTimeout)
	if p.timer == nil {
		p.timer = time.AfterFunc(limit, p.expire)
		return
	}
	p.timer.Reset(limit)
}

// expire ends the supervisors that have been idle for too long.
func (p *Pool) expire() {
	defer p.expiries.Done()
	p.mu.Lock()
	p.armed = false
	limit := cmp.Or(p.idleLimit, idleTimeout)
	fresh := slices.IndexFunc(p.idle, func(h *handle) bool { return time.Since(h.idleSince) < limit })
	if fresh < 0 {
		fresh = len(p.idle)
	}
	expired := slices.Clone(p.idle[:fresh])
	p.idle = slices.Delete(p.idle, 0, fresh)
	if len(p.idle) > 0 && !p.closed {
		p.armLocked()
	}
	p.mu.Unlock()
	for _, h := range expired {
		h.end()
	}
}

// Stats returns what the pool has counted.
func (p *Pool) Stats() PoolStats {
	return PoolStats{Started: p.started.Load(), Lost: p.lost.Load()}
}

// Close ends the idle supervisors, and waits until they have ended. Those that
// run a program end with it; programs that are started later work, too, but
// their supervisors aren't kept.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	if p.armed && p.timer.Stop() {
		p.armed = false
		p.expiries.Done()
	}
	p.mu.Unlock()
	for _, h := range idle {
		h.end()
	}
	p.expiries.Wait()
}

package session

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
)

const (
	// admitHold is how long a stream waits for its turn before its worker is told
	// when to come again: shorter than the patience of workers.
	admitHold = 500 * time.Millisecond
	// opensAtOnce is how many streams are being opened at a time: enough for one
	// entry of the log to hold many, and few enough that all of them, and what
	// waits behind them, get a processor soon.
	opensAtOnce = 256
	// helloSoon is for how long a stream that says no hello counts as one of them.
	helloSoon = 500 * time.Millisecond
	// paceWindow is how long openings are counted for a measurement of their pace.
	paceWindow = 100 * time.Millisecond
	// slowestPace bounds what is measured.
	slowestPace = 20 * time.Millisecond
	// longestAway is the longest time after which a worker is told to come again.
	longestAway = 10 * time.Second
)

// admission lets sessions in at a bounded rate, and only so many at a time, so
// that thousands of workers that come back at once do not keep the leader from
// its work: Go runs what can run in turn, so that each of thousands of streams
// that are being opened together would go before the log.
//
// Those whose turn is near wait for it. The others get a time at which to come
// again, each its own, at the pace at which sessions were opened lately: a leader
// that has little of its machine is asked as often as it can answer.
type admission struct {
	step  time.Duration // between two turns, at least
	burst time.Duration // turns that nobody took and that can still be taken

	mu    sync.Mutex // guards the rest
	next  time.Time  // the next turn
	again time.Time  // when the next one that is sent away shall come

	opening int           // have had their turn and are not open yet
	pace    time.Duration // between two that were opened, while there were too many; else step
	since   time.Time     // beginning of the present measurement
	opened  int           // in it
	away    bool          // somebody was sent away in it
}

func newAdmission(rate int) *admission {
	step := time.Second / time.Duration(rate)
	return &admission{step: step, pace: step, burst: step * time.Duration(max(16, rate/10))}
}

// turn gives the next turn if it is near, or else the time after which to come
// again. Who has had a turn says when that is over.
func (a *admission) turn(now time.Time) (wait time.Duration, let bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if earliest := now.Add(a.step - a.burst); a.next.Before(earliest) {
		a.next = earliest
	}
	if wait = a.next.Sub(now); wait <= admitHold && a.opening < opensAtOnce {
		if a.opening == 0 {
			a.measure(now)
		}
		a.opening++
		a.next = a.next.Add(a.step)
		return max(wait, 0), true
	}
	a.away = true
	earliest := now.Add(time.Duration(a.opening) * a.pace)
	if earliest.Before(a.next) {
		earliest = a.next
	}
	if a.again.Before(earliest) {
		a.again = earliest
	}
	if wait = a.again.Sub(now); wait > longestAway {
		return longestAway/2 + rand.N(longestAway/2), false //nolint:gosec // spreads reconnects, guards nothing
	}
	a.again = a.again.Add(a.pace)
	return wait, false
}

// over ends a turn: the session is open, or was refused.
func (a *admission) over(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opening--
	a.opened++
	if took := now.Sub(a.since); took >= paceWindow {
		a.pace = a.step
		if a.away {
			a.pace = min(max(took/time.Duration(a.opened), a.step), slowestPace)
		}
		a.measure(now)
	}
}

// measure begins a measurement of the pace.
func (a *admission) measure(now time.Time) { a.since, a.opened, a.away = now, 0, false }

// pass is a turn that a stream has.
type pass struct {
	a    *admission
	at   time.Time // when it is
	once sync.Once
	stop func() bool // ends the watch over the stream
}

type passKey struct{}

// enter gives a stream a turn, with a context that knows it, or says when to come
// again. It does not wait. The turn is over at the end of the stream at the latest.
func (a *admission) enter(ctx context.Context) (context.Context, error) {
	now := time.Now()
	wait, let := a.turn(now)
	if !let {
		spread := rand.N(50 * time.Millisecond) //nolint:gosec // spreads reconnects, guards nothing
		return ctx, &sequencer.BusyError{What: "many workers come back at once", RetryAfter: wait + spread}
	}
	p := &pass{a: a, at: now.Add(wait)}
	p.stop = context.AfterFunc(ctx, p.end)
	return context.WithValue(ctx, passKey{}, p), nil
}

func (p *pass) end() {
	p.once.Do(func() { p.a.over(time.Now()) })
}

// over ends the turn and the watch.
func (p *pass) over() {
	p.stop()
	p.end()
}

// admit waits for the turn of a stream. The error says when to come again.
func (a *admission) admit(ctx context.Context) (*pass, error) {
	p, ok := ctx.Value(passKey{}).(*pass)
	if !ok {
		entered, err := a.enter(ctx)
		if err != nil {
			return nil, err
		}
		p, _ = entered.Value(passKey{}).(*pass)
	}
	wait := time.Until(p.at)
	if wait <= 0 {
		return p, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		p.over()
		return nil, ending(ctx)
	}
}

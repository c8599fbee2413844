package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Bounds of what a session may have in its lane that the leader has no room for. A
// worker reports what its slots held, and then waits: it gets here only if it says
// much else.
const (
	mostWaiting      = 1024
	mostWaitingBytes = 8 << 20
	tooMuchPause     = time.Second
)

// lane is the part of a carrier that one session has.
//
// Its messages are handled by whoever receives for the carrier, as they come. Only
// reports can have to wait, while the leader has no room for them: then they do so
// here, in order, with a goroutine of their own that hands them over, and nobody
// else in the carrier is held up.
type lane struct {
	c      *carrier
	number uint32
	ctx    context.Context //nolint:containedctx // the session's, as a stream of its own has one
	cancel context.CancelCauseFunc
	hello  chan *dtaskv1.SessionRequest // size 1: the first message; the session's

	open   atomic.Bool // the session has something to say: its welcome, and then all else
	queued atomic.Bool // it is among those that the carrier asks next
	ended  atomic.Bool // its end is on its way: nothing follows
	x      *session    // set before open is

	mu      sync.Mutex // guards the rest
	first   bool       // the first message has come
	begun   bool       // the worker is attached
	behind  bool       // what waits is being handed over; what comes joins it
	waiting []*dtaskv1.SessionRequest
	bytes   int // of them
}

// wake has the carrier ask the session what it has to say.
func (l *lane) wake() {
	if l.open.Load() && !l.queued.Swap(true) {
		l.c.out.Add(l)
	}
}

// join is wake for one of several sessions that have something to say at the same time: the carrier
// asks when it is told to hurry.
func (l *lane) join() {
	if l.open.Load() && !l.queued.Swap(true) {
		l.c.out.AddDeferred(l)
	}
}

// hear takes a message of the worker. It does not wait.
func (l *lane) hear(m *dtaskv1.SessionRequest) {
	l.mu.Lock()
	switch {
	case !l.first:
		l.first = true
		l.mu.Unlock()
		l.hello <- m
	case !l.begun:
		l.putLocked(m)
		l.mu.Unlock()
	default:
		behind := l.behind
		l.mu.Unlock()
		l.x.hear()
		if l.x.heed(m) {
			l.report(m, behind)
		}
	}
}

// report hands reports over, or leaves it to a goroutine if there is no room. Only
// who receives for the carrier comes here, so that nobody else can have begun one.
func (l *lane) report(m *dtaskv1.SessionRequest, behind bool) {
	x := l.x
	if !behind {
		taken, err := x.leader.TryReport(x.worker, x, m.GetReports(), m.GetLeaving())
		if err != nil {
			x.cancel(err)
		}
		if taken || err != nil {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(m)
	if !l.behind {
		l.behind = true
		l.c.all.Go(func() { l.catchUp(l.ctx) })
	}
}

// putLocked adds to what waits. Who has too much of it has to come again, and
// repeats then what was not acknowledged.
func (l *lane) putLocked(m *dtaskv1.SessionRequest) {
	l.waiting = append(l.waiting, m)
	l.bytes += proto.Size(m)
	if len(l.waiting) > mostWaiting || l.bytes > mostWaitingBytes {
		l.waiting, l.bytes = nil, 0
		l.cancel(&sequencer.BusyError{What: "this worker says more than there is room for", RetryAfter: tooMuchPause})
	}
}

// begin lets the session speak, and takes up what has come since its hello.
func (l *lane) begin(x *session) (waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.x = x
	l.begun = true
	list := l.waiting
	l.waiting, l.bytes = nil, 0
	for _, m := range list {
		if x.heed(m) {
			l.putLocked(m)
		}
	}
	l.behind = len(l.waiting) > 0
	return l.behind
}

// catchUp hands over what waits, until nothing does.
func (l *lane) catchUp(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.waiting, l.behind = nil, false
			l.mu.Unlock()
			return
		}
		m := l.waiting[0]
		l.mu.Unlock()
		l.x.report(ctx, m)
		l.mu.Lock()
		if len(l.waiting) > 0 { // else it was too much
			l.waiting = l.waiting[1:]
			l.bytes -= proto.Size(m)
		}
		l.mu.Unlock()
	}
}

// carried is what send is for a session in a carrier, which does the sending.
func (x *session) carried(ctx context.Context, first *dtaskv1.SessionRequest) error {
	l := x.lane
	waiting := l.begin(x)
	l.open.Store(true)
	l.wake()
	if reporting(first) {
		x.report(ctx, first)
	}
	if waiting {
		l.catchUp(ctx)
	}
	<-ctx.Done()
	return ending(ctx)
}

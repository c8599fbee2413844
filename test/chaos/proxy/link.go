package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// dialLimit is how long a connection to the target may take.
	dialLimit = 5 * time.Second
	// probeEvery is the interval of probes of a target that is down.
	probeEvery = 10 * time.Millisecond
)

// A Link passes connections on to one target.
type Link struct {
	addr, target string
	ctx          context.Context //nolint:containedctx // the lifetime of the link, ended by Close
	end          context.CancelFunc
	group        sync.WaitGroup

	accepted, resets, forward, back, dropped atomic.Int64

	mu       sync.Mutex // guards all below
	rules    Rules
	changed  chan struct{} // closed and replaced when rules change
	epoch    int           // counts changes of the rules
	listener net.Listener  // nil while new connections are refused
	deaf     chan struct{} // closed when listener accepts no more connections
	down     bool          // the target refuses
	pairs    map[*pair]struct{}
	lastErr  error // of the last attempt to listen again
}

// Stats counts what a link has done.
type Stats struct {
	Accepted int64 // connections
	Open     int   // open connections
	Resets   int64 // connections that the link reset
	Forward  int64 // bytes passed to the target
	Back     int64 // bytes passed from the target
	Dropped  int64 // bytes dropped in both directions
}

// Open makes a link that listens at addr, which may have port 0, and passes
// connections on to target. The caller closes it.
func Open(ctx context.Context, addr, target string) (*Link, error) {
	l := &Link{addr: addr, target: target, changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	l.ctx, l.end = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // Close ends it
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.listenLocked(); err != nil {
		l.end()
		return nil, err
	}
	l.addr = l.listener.Addr().String()
	return l, nil
}

// Addr is the address where the link listens.
func (l *Link) Addr() string { return l.addr }

// Target is where the link leads.
func (l *Link) Target() string { return l.target }

// Set replaces the rules, also for open connections.
func (l *Link) Set(r Rules) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = r
	l.epoch++
	close(l.changed)
	l.changed = make(chan struct{})
	return l.adjustLocked()
}

// Heal passes everything on again.
func (l *Link) Heal() error { return l.Set(Rules{}) }

// ResetAll resets every open connection and returns how many there were.
func (l *Link) ResetAll() int {
	l.mu.Lock()
	pairs := make([]*pair, 0, len(l.pairs))
	for p := range l.pairs {
		pairs = append(pairs, p)
	}
	l.mu.Unlock()
	for _, p := range pairs {
		p.reset()
	}
	return len(pairs)
}

// Stats returns the counters.
func (l *Link) Stats() Stats {
	l.mu.Lock()
	open := len(l.pairs)
	l.mu.Unlock()
	return Stats{Accepted: l.accepted.Load(), Open: open, Resets: l.resets.Load(), Forward: l.forward.Load(), Back: l.back.Load(), Dropped: l.dropped.Load()}
}

// Close ends the link with all its connections and waits for its goroutines.
func (l *Link) Close() error {
	l.end()
	l.mu.Lock()
	l.closeListenerLocked()
	err := l.lastErr
	l.mu.Unlock()
	l.ResetAll()
	l.group.Wait()
	return err
}

// now returns the current rules, how often they were changed, and a channel that is
// closed when they change.
func (l *Link) now() (r Rules, epoch int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rules, l.epoch, l.changed
}

// adjustLocked starts or stops listening according to the rules and the target.
func (l *Link) adjustLocked() error {
	switch open := !l.rules.Refuse && !l.down && l.ctx.Err() == nil; {
	case open && l.listener == nil:
		return l.listenLocked()
	case !open:
		l.closeListenerLocked()
	}
	return nil
}

func (l *Link) closeListenerLocked() {
	if l.listener != nil {
		_ = l.listener.Close() // no connection uses it
		<-l.deaf               // until then the kernel still accepts
		l.listener = nil
	}
}

func (l *Link) listenLocked() error {
	var config net.ListenConfig
	listener, err := config.Listen(l.ctx, "tcp", l.addr)
	if err != nil {
		l.lastErr = fmt.Errorf("listening for link to %s: %w", l.target, err)
		return l.lastErr
	}
	l.listener, l.deaf = listener, make(chan struct{})
	deaf := l.deaf
	l.group.Go(func() { l.accept(listener, deaf) })
	return nil
}

// accept ends with its listener.
func (l *Link) accept(listener net.Listener, deaf chan<- struct{}) {
	defer close(deaf)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
				return
			}
			continue // out of descriptors, or the peer has left
		}
		l.accepted.Add(1)
		l.group.Go(func() { l.serve(conn) })
	}
}

// serve connects a new connection to the target and runs until both end.
func (l *Link) serve(near net.Conn) {
	p := &pair{link: l, near: near, done: make(chan struct{})}
	l.mu.Lock()
	l.pairs[p] = struct{}{}
	closed := l.ctx.Err() != nil // Close may have reset all others already
	l.mu.Unlock()
	defer func() {
		p.close()
		l.mu.Lock()
		delete(l.pairs, p)
		l.mu.Unlock()
	}()
	if closed {
		p.reset()
		return
	}
	if !p.await() {
		return
	}
	dialer := net.Dialer{Timeout: dialLimit}
	far, err := dialer.DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		l.look(err)
		p.reset()
		return
	}
	if !p.join(far) {
		return
	}
	rules, _, _ := l.now()
	if !p.until(time.Now().Add(rules.Forward.Delay + rules.Back.Delay)) { // the handshake's round trip
		return
	}
	p.run()
}

// look determines from the error of a dial whether the target is down. Without an
// error it dials itself, and again if the target is just closing its port.
func (l *Link) look(err error) {
	for tries := 0; tries < 5 && (err == nil || errors.Is(err, syscall.ECONNRESET)); tries++ {
		if err = l.probe(); err == nil {
			return
		}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down || l.ctx.Err() != nil {
		return
	}
	l.down = true
	l.closeListenerLocked()
	l.group.Go(l.watch)
}

// probe connects to the target and hangs up.
func (l *Link) probe() error {
	dialer := net.Dialer{Timeout: dialLimit}
	conn, err := dialer.DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		return fmt.Errorf("connecting to target: %w", err)
	}
	return conn.Close()
}

// watch waits until the target listens again.
func (l *Link) watch() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.probe(); err == nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
	_ = l.adjustLocked() // kept in lastErr, which Close returns
}

package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network is an in-memory network between hosts with one address each.
type network struct {
	distance  time.Duration // between all hosts, in one direction
	mu        sync.Mutex    // guards the following fields, hosts and pipes
	rng       *rand.Rand
	listeners map[string]*listener
	cut       map[[2]string]bool // from, to: no data arrives
	delay     map[string]time.Duration
	pipes     map[*pipe]struct{}
	noWatches bool // see setWatches
}

func newNetwork(seed uint64) *network {
	return &network{
		rng: rand.New(rand.NewPCG(seed, 3)), listeners: make(map[string]*listener), cut: make(map[[2]string]bool),
		delay: make(map[string]time.Duration), pipes: make(map[*pipe]struct{}),
	}
}

// host is the network of one process.
type host struct {
	net     *network
	address string
	exited  *atomic.Bool // the process has no connections anymore; nil: it never exits
}

// exit closes the network of a process that has exited, as a kernel does: goroutines
// of the process that still hang in the simulation reach no other host.
func (h host) exit(reset bool) {
	if h.exited.Swap(true) {
		return
	}
	h.net.mu.Lock()
	l := h.net.listeners[h.address]
	h.net.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	if reset {
		h.net.reset(h.address)
	}
}

func (h host) gone() bool { return h.exited != nil && h.exited.Load() }

var errExited = errors.New("the process has exited")

// Listen implements coordinator.Network.
func (h host) Listen(_ context.Context, address string) (net.Listener, error) {
	if h.gone() {
		return nil, errExited
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.listeners[address] != nil {
		return nil, fmt.Errorf("%s is in use", address)
	}
	l := &listener{net: h.net, address: address, conns: make(chan net.Conn, 128), closed: make(chan struct{})}
	h.net.listeners[address] = l
	return l, nil
}

// Dial implements coordinator.Network.
func (h host) Dial(ctx context.Context, to string) (net.Conn, error) {
	if h.gone() {
		return nil, errExited
	}
	w := h.net
	w.mu.Lock()
	if w.cut[[2]string{h.address, to}] || w.cut[[2]string{to, h.address}] {
		w.mu.Unlock()
		<-ctx.Done()
		return nil, fmt.Errorf("dialing %s: %w", to, context.Cause(ctx))
	}
	there, back := w.delayLocked(h.address), w.delayLocked(to)
	w.mu.Unlock()
	if err := sleep(ctx, there); err != nil {
		return nil, err
	}
	w.mu.Lock()
	l := w.listeners[to]
	w.mu.Unlock()
	conn, err := h.connect(ctx, l, to)
	if late := sleep(ctx, back); late != nil && err == nil {
		return nil, errors.Join(late, conn.Close())
	}
	return conn, err
}

// connect hands one end of a new connection to a listener; nil refuses it.
func (h host) connect(ctx context.Context, l *listener, to string) (net.Conn, error) {
	w := h.net
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	there, back := newPipe(w, h.address, to), newPipe(w, to, h.address)
	there.back, back.back = back, there
	near := &conn{in: back, out: there, local: addr(h.address), remote: addr(to)}
	far := &conn{in: there, out: back, local: addr(to), remote: addr(h.address)}
	select {
	case l.conns <- far:
		if h.gone() {
			_ = near.Close()
			return nil, errExited
		}
		return near, nil
	case <-l.closed:
		_ = near.Close()
		return nil, refused
	case <-ctx.Done():
		_ = near.Close()
		return nil, context.Cause(ctx)
	}
}

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

type listener struct {
	net     *network
	address string
	conns   chan net.Conn // the backlog of a kernel
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.address)
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// setCut cuts one direction between two hosts, or heals it. Data in flight
// waits, because TCP would retransmit it.
func (w *network) setCut(from, to string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cut {
		w.cut[[2]string{from, to}] = true
	} else {
		delete(w.cut, [2]string{from, to})
	}
	for p := range w.pipes {
		if p.from == from && p.to == to {
			p.wakeLocked()
		}
	}
}

// setDelay delays everything that a host sends.
func (w *network) setDelay(from string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay[from] = d
}

// setWatches determines whether new connections that watch other replicas, over which
// replicas agree on an election without a timeout, can be opened.
func (w *network) setWatches(possible bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noWatches = !possible
}

// delayLocked returns how long something that a host sends is under way.
func (w *network) delayLocked(from string) time.Duration { return w.distance + w.delay[from] }

// reset breaks all connections of a host. The other hosts learn of it with its delay.
func (w *network) reset(a string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var broken []*pipe
	for p := range w.pipes {
		if p.from == a || p.to == a {
			broken = append(broken, p)
		}
	}
	arrive := func() {
		for _, p := range broken {
			p.resetLocked()
		}
	}
	if delay := w.delayLocked(a); delay > 0 {
		time.AfterFunc(delay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			arrive()
		})
		return
	}
	arrive()
}

// sleep waits for a delay of the network.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// pipe is one direction of a connection: a bounded queue of writes with their
// times of arrival.
type pipe struct {
	net      *network
	from, to string

	queue  []segment
	bytes  int
	last   time.Time
	err    error // set: broken for both ends
	eof    bool  // the writer has closed it
	gone   bool  // the reader has closed it
	back   *pipe // the other direction
	change chan struct{}
}

type segment struct {
	at   time.Time
	data []byte
}

// pipeBytes bounds the data in flight; the writer waits above it.
const pipeBytes = 1 << 20

func newPipe(w *network, from, to string) *pipe {
	p := &pipe{net: w, from: from, to: to, change: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pipes[p] = struct{}{}
	return p
}

func (p *pipe) wakeLocked() {
	close(p.change)
	p.change = make(chan struct{})
}

// resetLocked breaks this direction of a connection.
func (p *pipe) resetLocked() {
	if p.err == nil {
		p.err = syscall.ECONNRESET
		delete(p.net.pipes, p)
		p.wakeLocked()
	}
}

func (p *pipe) write(b []byte, deadline *deadline) (n int, err error) {
	p.net.mu.Lock()
	for p.err == nil && !p.eof && !p.gone && p.bytes >= pipeBytes {
		if err := p.waitLocked(deadline, nil); err != nil {
			p.net.mu.Unlock()
			return 0, err
		}
	}
	defer p.net.mu.Unlock()
	switch {
	case deadline.closed:
		return 0, net.ErrClosed
	case p.err != nil:
		return 0, p.err
	case p.net.noWatches && bytes.HasPrefix(b, []byte("DTSW")):
		p.resetLocked()
		p.back.resetLocked()
		return 0, syscall.ECONNRESET
	case p.gone && p.net.cut[[2]string{p.to, p.from}]:
		return len(b), nil // no reset arrives
	case p.gone:
		p.back.resetLocked() // a reset breaks both directions
		return 0, syscall.ECONNRESET
	}
	at := time.Now().Add(50*time.Microsecond + p.net.delayLocked(p.from))
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	p.queue = append(p.queue, segment{at, append([]byte(nil), b...)})
	p.bytes += len(b)
	p.wakeLocked()
	return len(b), nil
}

func (p *pipe) read(b []byte, deadline *deadline) (n int, err error) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	for {
		cut := p.net.cut[[2]string{p.from, p.to}]
		switch {
		case deadline.closed:
			return 0, net.ErrClosed
		case p.err != nil:
			return 0, p.err
		case len(p.queue) > 0 && !cut && !p.queue[0].at.After(time.Now()):
			for n < len(b) && len(p.queue) > 0 && !p.queue[0].at.After(time.Now()) {
				s := &p.queue[0]
				k := copy(b[n:], s.data)
				n += k
				if s.data = s.data[k:]; len(s.data) == 0 {
					p.queue = p.queue[1:]
				}
			}
			if p.bytes >= pipeBytes {
				p.wakeLocked()
			}
			p.bytes -= n
			return n, nil
		case len(p.queue) == 0 && p.eof && !cut:
			return 0, io.EOF
		}
		var arrives *time.Timer
		if len(p.queue) > 0 && !cut {
			arrives = time.NewTimer(time.Until(p.queue[0].at))
		}
		err := p.waitLocked(deadline, arrives)
		if arrives != nil {
			arrives.Stop()
		}
		if err != nil {
			return 0, err
		}
	}
}

// waitLocked waits for a change of the pipe, of the deadline, or a timer.
func (p *pipe) waitLocked(d *deadline, arrives *time.Timer) error {
	change, over, moved := p.change, d.over, d.moved
	var timer <-chan time.Time
	if arrives != nil {
		timer = arrives.C
	}
	if d.closed {
		return net.ErrClosed
	}
	p.net.mu.Unlock()
	defer p.net.mu.Lock()
	select {
	case <-change:
	case <-moved:
	case <-timer:
	case <-over:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// deadline is one of a connection's two deadlines. Guarded by network.mu.
type deadline struct {
	over   chan struct{} // closed after it has passed
	moved  chan struct{} // closed and replaced when it is set
	timer  *time.Timer
	closed bool
}

func newDeadline() deadline {
	return deadline{over: make(chan struct{}), moved: make(chan struct{})}
}

func (d *deadline) setLocked(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	close(d.moved)
	d.moved, d.over, d.timer = make(chan struct{}), make(chan struct{}), nil
	if t.IsZero() {
		return
	}
	over := d.over
	d.timer = time.AfterFunc(time.Until(t), func() { close(over) })
}

func (d *deadline) closeLocked() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.closed = true
	close(d.moved)
	d.moved = make(chan struct{})
}

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote addr
	once          sync.Once
	prepare       sync.Once
	r, w          deadline
}

var _ net.Conn = (*conn)(nil)

func (c *conn) init() { c.prepare.Do(func() { c.r, c.w = newDeadline(), newDeadline() }) }

func (c *conn) Read(b []byte) (int, error) {
	c.init()
	return c.in.read(b, &c.r)
}

func (c *conn) Write(b []byte) (int, error) {
	c.init()
	return c.out.write(b, &c.w)
}

func (c *conn) Close() error {
	c.init()
	c.once.Do(func() {
		w := c.in.net
		w.mu.Lock()
		defer w.mu.Unlock()
		c.r.closeLocked()
		c.w.closeLocked()
		c.in.gone, c.in.queue = true, nil
		c.in.wakeLocked()
		c.out.eof = true
		c.out.wakeLocked()
		if c.in.eof && c.out.gone { // both ends are closed
			delete(w.pipes, c.in)
			delete(w.pipes, c.out)
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.init()
	c.in.net.mu.Lock()
	defer c.in.net.mu.Unlock()
	c.r.setLocked(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.init()
	c.in.net.mu.Lock()
	defer c.in.net.mu.Unlock()
	c.w.setLocked(t)
	return nil
}

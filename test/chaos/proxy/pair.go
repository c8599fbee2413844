package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunkBytes is the maximum size of one read.
	chunkBytes = 32 << 10
	// queued is how many chunks may be in flight in one direction: enough for half a
	// second of latency at the speed of a log, and still bounded.
	queued = 256
)

// A pair is one connection through a link: two TCP connections.
type pair struct {
	link *Link
	near net.Conn

	once sync.Once
	done chan struct{} // closed by close

	mu  sync.Mutex // guards far
	far net.Conn   // nil until the target is connected
}

// await returns true when a new connection may proceed to the target, and false if it
// never will.
func (p *pair) await() bool {
	for {
		rules, _, changed := p.link.now()
		switch {
		case rules.Reset, rules.Refuse: // it was accepted just before they applied
			p.reset()
			return false
		case !rules.Mute:
			return true
		}
		select {
		case <-changed:
		case <-p.done:
			return false
		}
	}
}

// join adds the target's connection; false if the pair was closed meanwhile.
func (p *pair) join(far net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = far.Close() // nothing was written
		return false
	default:
		p.far = far
		return true
	}
}

// close closes both sides.
func (p *pair) close() {
	p.once.Do(func() {
		close(p.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.near.Close() // both ends are the tests' own
		if p.far != nil {
			_ = p.far.Close()
		}
	})
}

// reset closes both sides so that their peers see a reset.
func (p *pair) reset() {
	p.mu.Lock()
	for _, conn := range []net.Conn{p.near, p.far} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // unnecessary for a closed connection
		}
	}
	p.mu.Unlock()
	select {
	case <-p.done:
	default:
		p.link.resets.Add(1)
	}
	p.close()
}

// run copies in both directions until both have ended or one broke.
func (p *pair) run() {
	var group sync.WaitGroup
	group.Go(func() { p.pump(p.near, p.far, forwards, &p.link.forward) })
	group.Go(func() { p.pump(p.far, p.near, backwards, &p.link.back) })
	group.Wait()
}

type direction uint8

const (
	forwards direction = iota + 1
	backwards
)

func (r Rules) flow(d direction) Flow {
	if d == forwards {
		return r.Forward
	}
	return r.Back
}

// A chunk is the result of one read, with the time when it is due at the other side.
type chunk struct {
	bytes []byte
	due   time.Time
	end   bool // nothing follows
}

// pump copies one direction: this goroutine reads, another one writes.
func (p *pair) pump(from, to net.Conn, d direction, count *atomic.Int64) {
	chunks := make(chan chunk, queued)
	var group sync.WaitGroup
	group.Go(func() { p.write(to, d, chunks, count) })
	p.read(from, d, chunks)
	close(chunks)
	group.Wait()
}

func (p *pair) read(from net.Conn, d direction, out chan<- chunk) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var last time.Time
	lost := false
	for {
		if _, ok := p.unstalled(d); !ok {
			return
		}
		buffer := make([]byte, chunkBytes)
		n, err := from.Read(buffer)
		if err != nil && !p.over() && d == backwards {
			p.link.look(nil) // before the peer is notified
		}
		rules, _, _ := p.link.now()
		flow := rules.flow(d)
		if n > 0 && flow.Discard {
			lost = true
			p.link.dropped.Add(int64(n))
		} else if n > 0 || errors.Is(err, io.EOF) {
			if lost {
				p.reset()
				return
			}
			c := chunk{bytes: buffer[:n], end: n == 0}
			if flow.Delay > 0 || flow.Jitter > 0 {
				c.due = time.Now().Add(flow.Delay)
				if flow.Jitter > 0 {
					c.due = c.due.Add(time.Duration(random.Int64N(int64(flow.Jitter))))
				}
				if c.due.Before(last) {
					c.due = last
				}
				last = c.due
			}
			select {
			case out <- c:
			case <-p.done:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !p.over() {
				p.reset()
			}
			return
		}
	}
}

// over reports whether the pair was closed, so that errors are its own doing.
func (p *pair) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// unstalled returns the flow when it lets bytes through, and false when the pair is
// closed.
func (p *pair) unstalled(d direction) (Flow, bool) {
	for {
		rules, _, changed := p.link.now()
		flow := rules.flow(d)
		if !flow.Stall {
			return flow, true
		}
		select {
		case <-changed:
		case <-p.done:
			return flow, false
		}
	}
}

func (p *pair) write(to net.Conn, d direction, in <-chan chunk, count *atomic.Int64) {
	epoch, passed := -1, int64(0) // since the rules were set
	for c := range in {
		if !p.until(c.due) {
			return
		}
		for rest := c.bytes; len(rest) > 0; {
			flow, ok := p.unstalled(d)
			if !ok {
				return
			}
			if _, now, _ := p.link.now(); now != epoch {
				epoch, passed = now, 0
			}
			n := flow.piece(len(rest), passed)
			if n == 0 {
				p.reset()
				return
			}
			count.Add(int64(n)) // first, so that received bytes are already counted
			if _, err := to.Write(rest[:n]); err != nil {
				p.close()
				return
			}
			passed += int64(n)
			rest = rest[n:]
			if flow.Rate > 0 && !p.until(time.Now().Add(time.Duration(n)*time.Second/time.Duration(flow.Rate))) {
				return
			}
		}
		if tcp, ok := to.(*net.TCPConn); ok && c.end {
			_ = tcp.CloseWrite() // the other direction may continue
		}
	}
}

// piece returns how many of n bytes to write at once; 0 requests a cut.
func (f Flow) piece(n int, passed int64) int {
	if f.CutAfter > 0 {
		if passed >= f.CutAfter {
			return 0
		}
		n = int(min(int64(n), f.CutAfter-passed))
	}
	if f.Slice > 0 {
		n = min(n, f.Slice)
	}
	if f.Rate > 0 {
		n = min(n, max(1, f.Rate/20)) // 20 pieces a second
	}
	return n
}

// until waits until a time; false if the pair is closed before.
func (p *pair) until(due time.Time) bool {
	wait := time.Until(due)
	if due.IsZero() || wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// Flap applies rules and lifts them again, each for half a period, until ctx is done;
// then it heals the link.
func (l *Link) Flap(ctx context.Context, r Rules, period time.Duration) error {
	tick := time.NewTicker(period / 2)
	defer tick.Stop()
	for bad := true; ; bad = !bad {
		next := Rules{}
		if bad {
			next = r
		}
		if err := l.Set(next); err != nil {
			return err
		}
		if bad && r.Refuse {
			l.ResetAll()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return l.Heal()
		}
	}
}

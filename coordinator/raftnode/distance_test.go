package raftnode

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

// connect connects to an address over a link with the network's delay: the handshake
// and a refusal take a round trip, and bytes and the end of a connection arrive after
// the delay.
func (w *network) connect(ctx context.Context, to string) (net.Conn, error) {
	if w.delay == 0 {
		return transport.DialTCP(ctx, to)
	}
	if !sleep(ctx, w.delay) {
		return nil, context.Cause(ctx)
	}
	target, err := transport.DialTCP(ctx, to)
	if !sleep(ctx, w.delay) && err == nil {
		return nil, errors.Join(context.Cause(ctx), target.Close())
	}
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &slowConn{Conn: near, target: target}
	var relays sync.WaitGroup
	relays.Go(func() { relay(target, far, w.delay) })
	relays.Go(func() { relay(far, target, w.delay) })
	go func() { // ends when both ends are closed; goleak checks it
		relays.Wait()
		_, _ = far.Close(), target.Close()
	}()
	return c, nil
}

// slowConn is the dialer's end of a slow link.
type slowConn struct {
	net.Conn
	target net.Conn // the real connection
}

// Write implements net.Conn. It reports a broken connection as TCP does.
func (c *slowConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

// relay passes on bytes from one connection to another, each after a delay, and then
// the end.
func relay(from, to net.Conn, delay time.Duration) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024) // more than raft has in flight
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			pieces <- piece{time.Now().Add(delay), buffer[:n]}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			_ = from.Close() // the reader ends
		}
	}
	_ = to.Close()
}

func TestADeadLeaderOnADistantSiteIsReplacedWithoutATimeout(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]struct {
		roundTrip time.Duration
		secure    bool
	}{
		"40 ms": {40 * time.Millisecond, false}, "40 ms over TLS": {40 * time.Millisecond, true}, "100 ms": {100 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const kills = 5
			w := newNetwork()
			if link.secure {
				w = newSecureNetwork(t)
			}
			w.delay = link.roundTrip / 2
			c := newClusterOn(t, w, 3, slow)
			leader := c.leader(t)
			var gaps []time.Duration
			for range kills {
				c.watched(t, leader)
				leader.propose(t, 1, 10)
				died := time.Now()
				leader.kill()
				next := c.leader(t, leader)
				gaps = append(gaps, time.Since(died))
				leader.revive(t)
				leader = next
			}
			slices.Sort(gaps)
			median := gaps[kills/2]
			t.Logf("from the exit to an entry of the next leader: median %v, min %v, max %v", median, gaps[0], gaps[kills-1])
			if median > c[0].cfg.Heartbeat/2 {
				t.Errorf("the median %v is not below a timeout", median)
			}
			for _, n := range c {
				eventually(t, n.id+" has measured the round trip", func() bool { return n.Stats().RoundTrip >= link.roundTrip })
			}
			c.wantNoFatals(t)
		})
	}
}

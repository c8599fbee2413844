package worker

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// crowd is several workers that share their connections.
type group struct {
	*network
	dials   atomic.Int64
	workers []*Worker
	leave   []context.CancelFunc
	done    []chan error
}

func newGroup(t *testing.T, n *network, size int) *group {
	t.Helper()
	c := &group{network: n}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		c.dials.Add(1)
		return n.dial(ctx, addr)
	}
	conns := NewConnections()
	for i := range size {
		cfg := Config{Join: []string{"n1:1"}, Name: fmt.Sprintf("w%d", i), Slots: 1, WorkDir: t.TempDir(), DrainTimeout: -1}
		w, err := New(cfg, WithDialer(dial), WithConnections(conns))
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("echo", returns)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		c.workers, c.leave, c.done = append(c.workers, w), append(c.leave, cancel), append(c.done, done)
	}
	return c
}

// finish ends workers and replicas.
func (c *group) finish() {
	for _, leave := range c.leave {
		leave()
	}
	c.stopAll()
	for _, done := range c.done {
		<-done
	}
}

func TestWorkersOfAProcessShareAConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		const size = 5
		c := newGroup(t, n, size)
		defer c.finish()
		ends := map[string]*leaderEnd{}
		welcome := func(term uint64) {
			l := (<-r.sessions).welcome(t, term)
			ends[l.hello.GetHello().GetName()] = l
		}
		for range size {
			welcome(1)
		}
		if got := c.dials.Load(); got != 1 || len(ends) != size {
			t.Fatalf("%d workers: got %d connections, want 1", len(ends), got)
		}
		for name, l := range ends {
			l.assign(t, work{task: 1, typ: "echo", body: &dtaskv1.TaskBody{Payload: []byte(name)}})
		}
		for name, l := range ends {
			if o := l.outcome(t); string(o.GetResult()) != name {
				t.Errorf("worker %s: got result %s", name, o.GetResult())
			}
			l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 1}})
		}

		// A rejected worker retries over the same connection, and a worker that
		// leaves does not close it for the others.
		ends["w0"].end <- refused(codes.ResourceExhausted, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 10})
		welcome(1)
		c.leave[1]()
		ends["w1"].serveTillEnd(t)
		synctest.Wait()
		ends["w2"].next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
		if got := c.dials.Load(); got != 1 {
			t.Errorf("got %d dialed connections, want 1", got)
		}

		// The process at the other end dies; all workers connect to the next
		// one.
		n.stop("n1:1")
		r = n.listen("n1:1", nil)
		for range size - 1 {
			welcome(2)
		}
		if got := c.dials.Load(); got != 2 {
			t.Errorf("got %d dialed connections, want 2", got)
		}
	})
}

// After the loss of a leader, thousands of workers are refused until it is their turn: each
// new connection would cost both sides a handshake.
func TestAWorkerThatIsRefusedForAWhileKeepsItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		c := newGroup(t, n, 1)
		defer c.finish()
		for range 3 {
			(<-r.sessions).end <- refused(codes.ResourceExhausted, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 4000})
		}
		l := (<-r.sessions).welcome(t, 1)
		if got := c.dials.Load(); got != 1 {
			t.Errorf("got %d connections, want 1", got)
		}
		c.leave[0]()
		l.serveTillEnd(t)
		synctest.Wait()
		if got := len(c.workers[0].conns.open); got != 0 {
			t.Errorf("got %d open connections of a worker that has left, want 0", got)
		}
	})
}

func TestAHungConnectionIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		c := newGroup(t, n, 2)
		defer c.finish()
		(<-r.sessions).welcome(t, 1)
		(<-r.sessions).welcome(t, 1)
		// The leader stops answering. Both workers leave, and use a new
		// connection.
		since := time.Now()
		(<-r.sessions).welcome(t, 2)
		(<-r.sessions).welcome(t, 2)
		if took := time.Since(since); took < livenessTimeout || c.dials.Load() != 2 {
			t.Errorf("got both back after %v over connection %d, want 2 s and the second", took, c.dials.Load())
		}
	})
}

func TestAConnectionIsOpenWhileInUse(t *testing.T) {
	t.Parallel()
	made := 0
	dial := func() (*grpc.ClientConn, error) {
		made++
		return grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	c := NewConnections()
	take := func(addr string) *connection {
		conn, err := c.acquire(endpoint{addr: addr}, dial)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	a, b, other := take("a"), take("a"), take("b")
	if a != b || a == other || made != 2 {
		t.Errorf("got %d connections for two endpoints", made)
	}
	c.release(a, false)
	fresh := take("a")
	if fresh == a {
		t.Error("an unhealthy connection is used again")
	}
	c.release(b, true) // the last user of the first one
	if take("a") != fresh {
		t.Error("the end of an old connection removed the new one")
	}
	c.release(fresh, true)
	c.release(fresh, true)
	c.release(other, true)
	if len(c.open) != 0 {
		t.Errorf("got %d open connections, want 0", len(c.open))
	}
}

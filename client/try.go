package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Timing of the guard. A coordinator that hangs is left after at most
// pingInterval + pingTimeout: 2.25 s, below the guaranteed 2.5 s.
const (
	firstPingDelay = 250 * time.Millisecond
	pingInterval   = 500 * time.Millisecond
	pingTimeout    = 1750 * time.Millisecond
	probeTimeout   = 500 * time.Millisecond // for an address that failed recently
)

// maxRedirects is how many leader hints one attempt follows.
const maxRedirects = 3

// errDone is returned by a run that needs no further responses.
var errDone = errors.New("client: done")

// An operation is a call of a caller. It may take many attempts.
type operation struct {
	name    string        // for error messages: "reading job 42"
	timeout time.Duration // of one attempt; 0 = only the guard ends it
	key     string        // idempotency key
	stale   bool          // any replica may answer
	// guarded means that run watches the coordinator itself.
	guarded bool
	// sparesLeader means that a replica that does not lead answers as well, and that the answer
	// takes so much work that the leader should not have it.
	sparesLeader bool
	// first are addresses that are tried before all others, once.
	first []string
	run   func(ctx context.Context, t try) error
}

// A try is one run of an operation at one coordinator.
type try struct {
	conn *grpc.ClientConn
	// connected is called when a stream has received a message. It stops the
	// timeout of the operation.
	connected func()
}

func (t try) jobs() dtaskv1.JobServiceClient        { return dtaskv1.NewJobServiceClient(t.conn) }
func (t try) cluster() dtaskv1.ClusterServiceClient { return dtaskv1.NewClusterServiceClient(t.conn) }
func (t try) admin() dtaskv1.AdminServiceClient     { return dtaskv1.NewAdminServiceClient(t.conn) }
func (t try) auth() dtaskv1.AuthServiceClient       { return dtaskv1.NewAuthServiceClient(t.conn) }

func (t try) schedules() dtaskv1.ScheduleServiceClient {
	return dtaskv1.NewScheduleServiceClient(t.conn)
}

func (t try) queues() dtaskv1.QueueServiceClient {
	return dtaskv1.NewQueueServiceClient(t.conn)
}

func (t try) limits() dtaskv1.LimitServiceClient {
	return dtaskv1.NewLimitServiceClient(t.conn)
}

// do runs op until it succeeds, fails permanently, or times out.
func (c *Client) do(ctx context.Context, op operation) error {
	walking, w := newRetryLoop(ctx, c.cfg.Timeout, op)
	w.waiting = c.cfg.Waiting
	defer w.end()
	for {
		began := time.Now()
		done, err := c.round(walking, w)
		w.took = time.Since(began)
		if done {
			return err
		}
		if !w.pause(walking) {
			return w.timedOut(ctx)
		}
	}
}

// round tries every address once, in order, and follows redirects.
func (c *Client) round(ctx context.Context, w *retryLoop) (done bool, err error) {
	tried := make(map[string]bool)
	own := false // some address may be of this client's cluster
	w.beginRound()
	order := slices.Concat(w.op.first, c.book.order())
	if w.op.sparesLeader {
		order = c.leaderLast(ctx, order)
	}
	w.op.first = nil // one that breaks a stream each time must not be tried forever
	for _, addr := range order {
		for redirects := 0; addr != "" && !tried[addr] && redirects <= maxRedirects; redirects++ {
			tried[addr] = true
			err := c.tryAddress(ctx, w, addr)
			if err == nil || errors.Is(err, errDone) {
				if w.op.sparesLeader {
					c.book.meet(addr) // other calls need the leader, which it may not be
				} else {
					c.book.answered(addr)
				}
				return true, nil
			}
			j := classify(err)
			if ctx.Err() != nil {
				w.noteInterrupted(j)
				return false, nil //nolint:nilerr // the caller checks ctx
			}
			if j.next == tryOwn {
				j.message = c.noteForeign(addr, j.cluster)
			}
			own = own || j.next != tryOwn
			w.note(addr, j)
			at := addr
			addr = ""
			switch j.next {
			case fail:
				return true, w.failed(j)
			case retryLater:
				return false, nil
			case tryLeader:
				if c.isLocalOnly(at) && j.leader != "" {
					return true, w.notHere(j.leader)
				}
				c.book.learn(j.leader)
				addr = j.leader
			case tryOther, tryOwn:
			}
			if w.connected {
				return false, nil // the stream worked: start again at the last leader
			}
		}
	}
	switch {
	case !own:
		return true, w.allForeign()
	case w.hopeless():
		return true, w.faulted()
	}
	return false, nil
}

// leaderLast returns the addresses in an order that begins with one of a replica that does not lead,
// as far as they answer.
func (c *Client) leaderLast(ctx context.Context, order []string) []string {
	for i, addr := range order {
		if i == len(order)-1 || !c.leads(ctx, addr) {
			return slices.Concat(order[i:], order[:i])
		}
	}
	return order
}

// leads reports whether the coordinator at an address says that it leads.
func (c *Client) leads(ctx context.Context, addr string) bool {
	conn, err := c.conn(addr)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	who, err := dtaskv1.NewClusterServiceClient(conn).Identify(ctx, &dtaskv1.IdentifyRequest{})
	return err == nil && who.GetState() == "leader"
}

// tryAddress runs the operation at one address and leaves it when it hangs.
// The error is a status.
func (c *Client) tryAddress(ctx context.Context, w *retryLoop, addr string) error {
	conn, err := c.conn(addr)
	if err != nil {
		return err
	}
	suspected := c.book.suspected(addr)
	if limit := c.probeLimit(w, suspected); limit > 0 {
		probing, cancel := context.WithTimeout(ctx, limit)
		_, err = dtaskv1.NewClusterServiceClient(conn).Identify(probing, &dtaskv1.IdentifyRequest{})
		cancel()
		if err != nil && classify(err).next == tryOwn {
			return err
		}
		if err != nil && !answered(err) {
			if fault := c.diagnose(ctx, addr); fault != nil {
				return fault
			}
			if !suspected && ctx.Err() == nil {
				c.book.failed(addr)
			}
			return &unsentError{st: status.New(codes.Unavailable, plain(status.Convert(err).Message()))}
		}
		c.book.meet(addr)
	}
	err = w.runGuarded(ctx, conn)
	if w.connected {
		c.book.meet(addr)
	}
	if err != nil && ctx.Err() == nil && classify(err).next == tryOther {
		if fault := c.diagnose(ctx, addr); fault != nil {
			return fault
		}
		c.book.failed(addr)
	}
	return err
}

// answered reports whether the error of a ping shows that the coordinator is alive: it
// lacks the method, or this caller may not ask, although it may call others.
func answered(err error) bool {
	return slices.Contains([]codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied}, status.Code(err))
}

// probeLimit returns the timeout of the probe before an attempt; 0 = no probe.
// While the client doesn't know its cluster, it asks before each attempt: a call
// that may have had its effect in one cluster is then never repeated in another.
func (c *Client) probeLimit(w *retryLoop, suspected bool) time.Duration {
	switch {
	case suspected:
		return probeTimeout
	case c.identity.get() != "":
		return 0
	case w.limit > 0:
		return min(w.limit, pingTimeout)
	}
	return pingTimeout
}

// runGuarded runs the operation and the guard, and returns when both have
// ended.
func (w *retryLoop) runGuarded(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.limit > 0 {
		var stop context.CancelFunc
		slow := status.Errorf(codes.DeadlineExceeded, "no response within %s", w.limit)
		ctx, stop = context.WithTimeoutCause(ctx, w.limit, slow)
		defer stop()
	}
	var guarding sync.WaitGroup
	if !w.op.guarded {
		guarding.Go(func() {
			if err := guard(ctx, conn, w.op.stale); err != nil {
				cancel(err)
			}
		})
	}
	w.connected = false
	err := w.op.run(ctx, try{conn: conn, connected: w.noteConnected})
	cause := context.Cause(ctx)
	cancel(nil)
	guarding.Wait()
	w.noteDisconnected()

	if err == nil || errors.Is(err, errDone) {
		return err
	}
	if _, ok := status.FromError(cause); ok && cause != nil {
		if status.Code(cause) == codes.DeadlineExceeded {
			w.limit = min(2*w.limit, w.op.timeout*8)
		}
		return cause // more specific than "context canceled"
	}
	return err
}

// guard pings the coordinator every pingInterval and returns an error when it
// does not respond. It returns nil when ctx is done. Unless stale reads
// suffice, it also returns an error when the coordinator reports twice in a
// row that it knows no leader.
func guard(ctx context.Context, conn *grpc.ClientConn, stale bool) error {
	cluster := dtaskv1.NewClusterServiceClient(conn)
	timer := time.NewTimer(firstPingDelay)
	defer timer.Stop()
	for leaderless := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		limited, cancel := context.WithTimeout(ctx, pingTimeout)
		who, err := cluster.Identify(limited, &dtaskv1.IdentifyRequest{})
		cancel()
		switch {
		case ctx.Err() != nil || status.Code(err) == codes.Unimplemented:
			return nil
		case err != nil && answered(err):
			leaderless = 0
		case err != nil && classify(err).next == tryOwn:
			return err
		case err != nil:
			return status.Errorf(codes.Unavailable, "no response to pings for %s", pingTimeout)
		case !stale && who.GetLeaderId() == "" && (who.GetState() == "follower" || who.GetState() == "candidate"):
			leaderless++
		default:
			leaderless = 0
		}
		if leaderless >= 2 {
			return status.Error(codes.Unavailable, "no leader")
		}
		timer.Reset(pingInterval)
	}
}

// onceError is the error of once that another attempt would have, too.
type onceError struct {
	kind    error // ErrForeignCluster, ErrUntrusted or a kind of it, that of a socketError, ErrRefused or a kind of it
	message string
}

// Error implements error.
func (e *onceError) Error() string { return e.message }

// once runs call at addr without retries, within limit.
func (c *Client) once(ctx context.Context, addr string, limit time.Duration, call func(ctx context.Context, t try) error) error {
	conn, err := c.conn(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := call(ctx, try{conn: conn, connected: func() {}}); err != nil {
		j := classify(err)
		if j.next == tryOther {
			if fault := c.diagnose(ctx, addr); fault != nil {
				j = classify(fault)
			}
		}
		switch {
		case j.next == tryOwn:
			return &onceError{ErrForeignCluster, addr + " " + c.noteForeign(addr, j.cluster)}
		case j.fault != nil:
			return &onceError{j.fault, addr + ": " + j.message}
		case j.next == fail && errors.Is(j.kind, ErrRefused) && status.Code(err) != codes.Unimplemented:
			return &onceError{j.kind, addr + ": " + j.message}
		}
		return fmt.Errorf("%s: %s", addr, plain(status.Convert(err).Message()))
	}
	return nil
}

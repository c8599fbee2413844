package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Times of the guard. A coordinator that hangs is left pingEvery + pingLimit
// after it began to, at the latest: 2.25 s, below the 2.5 s that are promised.
const (
	firstPingDelay = 250 * time.Millisecond
	pingInterval   = 500 * time.Millisecond
	pingTimeout    = 1750 * time.Millisecond
	probeTimeout   = 500 * time.Millisecond // for an address that failed a moment ago
)

// maxRedirects is how often one try follows a leader hint.
const maxRedirects = 3

// errEnough is returned by a run that needs no more answers.
var errDone = errors.New("client: enough")

// An operation is one call as the caller sees it: it may take many tries.
type operation struct {
	name    string        // what is being done, for errors: "reading job 42"
	timeout time.Duration // of one try; 0 = the guard alone ends it
	key     string        // idempotency key, of a submission
	stale   bool          // any replica may answer
	// guarded means that run itself watches over the coordinator.
	guarded bool
	run     func(ctx context.Context, t try) error
}

// A try is one run of an operation at one coordinator.
type try struct {
	conn *grpc.ClientConn
	// heard says that the coordinator took the call and that a stream is up:
	// the caller's patience is not used up while it lasts.
	connected func()
}

func (t try) jobs() dtaskv1.JobServiceClient        { return dtaskv1.NewJobServiceClient(t.conn) }
func (t try) cluster() dtaskv1.ClusterServiceClient { return dtaskv1.NewClusterServiceClient(t.conn) }
func (t try) admin() dtaskv1.AdminServiceClient     { return dtaskv1.NewAdminServiceClient(t.conn) }

// do runs op until it succeeds, fails for good, or nobody took it in time.
func (c *Client) do(ctx context.Context, op operation) error {
	walking, w := newRetryLoop(ctx, c.cfg.Timeout, op)
	defer w.end()
	for {
		done, err := c.round(walking, w)
		if done {
			return err
		}
		if !w.pause(walking) {
			return w.timedOut(ctx)
		}
	}
}

// round tries every address once, in the book's order, and follows redirects.
func (c *Client) round(ctx context.Context, w *retryLoop) (done bool, err error) {
	tried := make(map[string]bool)
	for _, addr := range c.book.order() {
		for redirects := 0; addr != "" && !tried[addr] && redirects <= maxRedirects; redirects++ {
			tried[addr] = true
			err := c.tryAddress(ctx, w, addr)
			if err == nil || errors.Is(err, errDone) {
				c.book.answered(addr)
				return true, nil
			}
			j := classify(err)
			if ctx.Err() != nil {
				w.noteInterrupted(j)
				return false, nil //nolint:nilerr // the caller looks at ctx
			}
			w.note(addr, j)
			addr = ""
			switch j.next {
			case fail:
				return true, w.failed(j)
			case retryLater:
				return false, nil
			case tryLeader:
				c.book.learn(j.leader)
				addr = j.leader
			case tryOther:
			}
			if w.connected {
				return false, nil // it worked until now: begin anew, the last leader first
			}
		}
	}
	return false, nil
}

// visit runs the operation at one address and leaves it when it hangs. The
// error is a status.
func (c *Client) tryAddress(ctx context.Context, w *retryLoop, addr string) error {
	conn, err := c.conn(addr)
	if err != nil {
		return err
	}
	if c.book.suspected(addr) {
		probing, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err = dtaskv1.NewClusterServiceClient(conn).Identify(probing, &dtaskv1.IdentifyRequest{})
		cancel()
		if err != nil && status.Code(err) != codes.Unimplemented {
			return &unsentError{st: status.New(codes.Unavailable, plain(status.Convert(err).Message()))}
		}
	}
	err = w.runGuarded(ctx, conn)
	if err != nil && ctx.Err() == nil && classify(err).next == tryOther {
		c.book.failed(addr)
	}
	return err
}

// guarded runs the operation with a guard beside it, and returns when both
// have ended.
func (w *retryLoop) runGuarded(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.limit > 0 {
		var stop context.CancelFunc
		slow := status.Errorf(codes.DeadlineExceeded, "no answer within %s", w.limit)
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
		return cause // says more than "context canceled"
	}
	return err
}

// guard asks the coordinator every half second whether it is alive, and
// returns an error when it is not. It returns nil when ctx is done. A replica
// that twice in a row knows no leader cannot serve a fresh read or a write: it
// is left too.
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
		case err != nil:
			return status.Errorf(codes.Unavailable, "hangs: no sign of life for %s", pingTimeout)
		case !stale && who.GetLeaderId() == "" && (who.GetState() == "follower" || who.GetState() == "candidate"):
			leaderless++
		default:
			leaderless = 0
		}
		if leaderless >= 2 {
			return status.Error(codes.Unavailable, "has lost its leader")
		}
		timer.Reset(pingInterval)
	}
}

// once runs call at addr without repeats, within statusLimit.
func (c *Client) once(ctx context.Context, addr string, call func(ctx context.Context, t try) error) error {
	conn, err := c.conn(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := call(ctx, try{conn: conn, connected: func() {}}); err != nil {
		return fmt.Errorf("%s: %s", addr, plain(status.Convert(err).Message()))
	}
	return nil
}

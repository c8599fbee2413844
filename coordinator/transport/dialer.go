package transport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// headStart is how long a lookup may take before the address that the last one found is
	// tried. An answer within it is current; a slower name server delays nothing.
	headStart = 20 * time.Millisecond
	// nextAddress is the delay before a further address of a host is tried, as for dual
	// stacks (RFC 8305).
	nextAddress = 250 * time.Millisecond
)

// Dialer opens TCP connections to peers by name. It never waits for a name server to try an
// address that it knows: the name of a peer that was down may be looked up for seconds
// although the peer has returned. It is safe for concurrent use.
type Dialer struct {
	names   *names
	connect func(ctx context.Context, address string) (net.Conn, error)
}

// NewDialer returns a Dialer.
func NewDialer() *Dialer { return &Dialer{names: newNames(), connect: DialTCP} }

// Dial connects to HOST:PORT, as DialTCP does. It tries the known addresses of a name after
// headStart, and those that a lookup finds when it does. Its error is that of the first
// address that failed, or else that of the lookup. While no lookup is answered, it returns
// the error of a known address after lookupInterval at the latest, so that callers can
// repeat the call.
func (d *Dialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return d.connect(ctx, address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return d.connect(ctx, address)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &dialing{d: d, host: host, port: port, results: make(chan dialed)}
	conn, err := r.run(ctx)
	cancel()
	r.discard()
	return conn, err
}

// dialing is one call of Dial for a name.
type dialing struct {
	d          *Dialer
	host, port string

	queue    []string    // addresses to try next
	tried    []string    // and those that were or are tried
	running  int         // of those, that have no result
	results  chan dialed // unbuffered; run or discard receives one for each that runs
	failed   error       // of the first address
	resolved bool        // a lookup was answered during this call
	ticks    int         // of nextAddress
}

// dialed is the result of one address.
type dialed struct {
	conn net.Conn
	err  error
}

// run tries addresses until one answers.
func (r *dialing) run(ctx context.Context) (net.Conn, error) {
	known, answered := r.d.names.refresh(ctx, r.host)
	head := time.NewTimer(headStart)
	defer head.Stop()
	tick := time.NewTicker(nextAddress)
	defer tick.Stop()
	for {
		if r.running == 0 {
			r.tryNext(ctx)
		}
		if ended, err := r.ended(); ended {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, r.interrupted(context.Cause(ctx))
		case one := <-r.results:
			r.running--
			if one.err == nil {
				return one.conn, nil
			}
			if r.failed == nil {
				r.failed = one.err
			}
		case <-head.C:
			r.add(known)
		case <-answered:
			head.Stop()
			r.resolved = true
			addresses, _ := r.d.names.last(r.host)
			r.add(addresses)
			r.tryNext(ctx)
			answered = nil
		case <-tick.C:
			r.ticks++
			r.tryNext(ctx)
			if !r.resolved {
				r.d.names.refresh(ctx, r.host)
			}
		}
	}
}

// ended reports whether nothing is left to try or to wait for, and the error.
func (r *dialing) ended() (ended bool, err error) {
	if r.running > 0 {
		return false, nil
	}
	if r.failed != nil {
		return r.resolved || time.Duration(r.ticks)*nextAddress >= lookupInterval, r.failed
	}
	if !r.resolved {
		return false, nil
	}
	if _, err = r.d.names.last(r.host); err == nil {
		err = &net.DNSError{Err: "no address", Name: r.host, IsNotFound: true}
	}
	return true, err
}

// interrupted is the error of a call whose ctx is done.
func (r *dialing) interrupted(cause error) error {
	switch {
	case r.failed != nil:
		return r.failed
	case len(r.tried) == 0:
		return fmt.Errorf("looking up %s: %w", r.host, cause)
	}
	return fmt.Errorf("connecting to %s at %s: %w", r.host, r.tried[0], cause)
}

// add adds addresses to those that are tried.
func (r *dialing) add(addresses []string) {
	for _, a := range addresses {
		if !slices.Contains(r.tried, a) && !slices.Contains(r.queue, a) {
			r.queue = append(r.queue, a)
		}
	}
}

// tryNext connects to the next address, if there is one.
func (r *dialing) tryNext(ctx context.Context) {
	if len(r.queue) == 0 {
		return
	}
	address := r.queue[0]
	r.queue, r.tried = r.queue[1:], append(r.tried, address)
	r.running++
	go func() {
		conn, err := r.d.connect(ctx, net.JoinHostPort(address, r.port))
		r.results <- dialed{conn, err}
	}()
}

// discard waits for the connections that are still being opened, and closes them. Their
// ctx is done.
func (r *dialing) discard() {
	for range r.running {
		if one := <-r.results; one.conn != nil {
			_ = one.conn.Close()
		}
	}
}

package load

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/turns"
)

// handshakes are those of all simulated workers. As many compute at a time as there are
// processors: on machines of their own, workers do not wait for each other; in one process,
// each step of a handshake would otherwise wait for that step of all others. All connections
// are still opened at once.
type handshakes struct {
	computing        *turns.Turns
	complete, failed atomic.Int64
}

func newHandshakes() *handshakes {
	return &handshakes{computing: turns.New(runtime.GOMAXPROCS(0))}
}

// credentials returns those of one worker.
func (h *handshakes) credentials(own credentials.TransportCredentials) credentials.TransportCredentials {
	return gatedCredentials{own, h}
}

// gatedCredentials take turns with those of the other workers.
type gatedCredentials struct {
	credentials.TransportCredentials
	all *handshakes
}

// ClientHandshake implements credentials.TransportCredentials.
func (g gatedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (conn net.Conn, info credentials.AuthInfo, err error) {
	defer func() {
		if err != nil {
			g.all.failed.Add(1)
		} else {
			g.all.complete.Add(1)
		}
	}()
	until, limited := ctx.Deadline()
	if !limited {
		until = time.Now().Add(livenessTimeout)
	}
	// A handshake that is cut off by its context would still compute: the deadline of the
	// connection ends it.
	if err := raw.SetDeadline(until); err != nil {
		return nil, nil, err //nolint:wrapcheck // of the connection itself
	}
	gate := turns.NewConn(raw, g.all.computing, until)
	if !gate.Begin() {
		return nil, nil, os.ErrDeadlineExceeded
	}
	defer gate.Finish()
	conn, info, err = g.TransportCredentials.ClientHandshake(context.WithoutCancel(ctx), authority, gate)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // one implementation for the other
	}
	return conn, info, raw.SetDeadline(time.Time{}) //nolint:wrapcheck // of the connection itself
}

// Clone implements credentials.TransportCredentials.
func (g gatedCredentials) Clone() credentials.TransportCredentials {
	return gatedCredentials{g.TransportCredentials.Clone(), g.all}
}

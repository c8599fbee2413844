package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/cluster/identities"
)

// bareHandshakes returns how many handshakes of a worker with a coordinator this machine can
// do per second: both sides, with their certificates and checks, and nothing else.
func bareHandshakes(ctx context.Context) (rate float64, err error) {
	dir, err := os.MkdirTemp("", "dtask-bench-")
	if err != nil {
		return 0, fmt.Errorf("creating directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, worker, err := handshakeSides(dir)
	if err != nil {
		return 0, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("listening: %w", err)
	}
	accepting := new(errgroup.Group)
	accepting.Go(func() error { return acceptHandshakes(l, server) })
	rate, err = dialHandshakes(ctx, l.Addr().String(), worker)
	return rate, errors.Join(err, l.Close(), accepting.Wait())
}

// handshakeSides returns the configurations of a coordinator and of a worker.
func handshakeSides(dir string) (server, worker *tls.Config, err error) {
	set, err := identities.New(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("making identities: %w", err)
	}
	issued, err := set.Issue("n1")
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	replica, err := tlsconf.LoadReplica(issued)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names the file
	}
	trust, err := tlsconf.ReadTrust(set.CAFile())
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names the file
	}
	keys := filepath.Join(dir, "worker")
	if err := os.Mkdir(keys, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making a directory for a key: %w", err)
	}
	key, err := tlsconf.OpenWorkerKey(keys)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names the file
	}
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: peering.GetConfigForClient}, trust.Config(&key, nil), nil
}

// acceptHandshakes is the coordinator's side, until l is closed.
func acceptHandshakes(l net.Listener, cfg *tls.Config) error {
	serving := new(errgroup.Group)
	for {
		raw, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return serving.Wait() //nolint:wrapcheck // says what it is
		}
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		serving.Go(func() error {
			defer func() { _ = raw.Close() }() // its peer has what it needs
			_, err := tls.Server(raw, cfg).Write([]byte{0})
			if err != nil {
				return fmt.Errorf("accepting a handshake: %w", err)
			}
			return nil
		})
	}
}

// dialHandshakes is the side of the workers. Each is complete when it hears that the
// coordinator has verified it.
func dialHandshakes(ctx context.Context, addr string, cfg *tls.Config) (rate float64, err error) {
	var done atomic.Int64
	dialing, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range 2 * runtime.GOMAXPROCS(0) {
		dialing.Go(func() error {
			for time.Since(began) < yardstickTime {
				conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
				if err != nil {
					return fmt.Errorf("connecting: %w", err)
				}
				_, err = conn.Read(make([]byte, 1))
				if err := errors.Join(err, conn.Close()); err != nil {
					return fmt.Errorf("connecting: %w", err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	err = dialing.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), err
}

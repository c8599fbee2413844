package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestASocketThatCanNotBeUsedIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	denied := func(context.Context, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	}
	for name, x := range map[string]struct {
		path string
		dial func(context.Context, string) (net.Conn, error)
		kind error
		want string
	}{
		"missing":         {path: filepath.Join(dir, "nosuch.sock"), kind: ErrUnreachable, want: "nosuch.sock: no such file: start the coordinator"},
		"below a file":    {path: filepath.Join(file, "d.sock"), kind: ErrUnreachable, want: "d.sock: no such file: start the coordinator"},
		"not a socket":    {path: file, kind: ErrUnreachable, want: "file: not a socket: set --socket or DTASK_SOCKET"},
		"of another user": {path: file, dial: denied, kind: ErrRefused, want: "file: permission denied: run the command as root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{Addrs: []string{"unix:" + x.path}, Timeout: time.Hour, Dial: x.dial})
			_, err := c.WhoAmI(t.Context())
			if !errors.Is(err, x.kind) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %v with %q", err, x.kind, x.want)
			}
			if _, err := c.ClusterStatus(t.Context()); !errors.Is(err, x.kind) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("of its status: got %v, want %v with %q", err, x.kind, x.want)
			}
		})
	}
}

// A coordinator that stops removes its socket, and one that is killed leaves it without a
// listener. Both come back.
func TestAClientWaitsForTheCoordinatorOfItsSocketToRestart(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"after it was stopped": false, "after it was killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "d.sock")
			failed := make(chan struct{})
			failure := sync.OnceFunc(func() { close(failed) })
			c := newClient(t, Config{Addrs: []string{"unix:" + path}, Timeout: time.Hour, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := dial(ctx, addr)
				if err != nil {
					failure()
				}
				return conn, err
			}})
			t.Run("before", func(t *testing.T) { // its server ends with it
				l := listen(t, "unix", path)
				if unix, ok := l.(*net.UnixListener); ok {
					unix.SetUnlinkOnClose(!killed)
				}
				serveListener(t, l, nil, new(fake), nil)
				if _, err := c.WhoAmI(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
			done := make(chan error, 1) // size 1: the result of the call
			go func() {
				_, err := c.WhoAmI(t.Context())
				done <- err
			}()
			select {
			case <-failed:
			case err := <-done:
				t.Fatalf("the call ended: %v", err)
			}
			if killed {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			serveListener(t, listen(t, "unix", path), nil, new(fake), nil)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

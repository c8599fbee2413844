package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A nameServer answers lookups as a test says.
type nameServer struct {
	answers []func(ctx context.Context) ([]string, error) // to the first lookups; the last one to all others
	asked   atomic.Int64
}

func (s *nameServer) lookup(ctx context.Context, _ string) ([]string, error) {
	n := int(s.asked.Add(1))
	return s.answers[min(n, len(s.answers))-1](ctx)
}

// silent never answers.
func silent(ctx context.Context) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// after answers with addresses after a delay; without addresses, with an error.
func after(delay time.Duration, addresses ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		time.Sleep(delay) // virtual time
		if len(addresses) == 0 {
			return nil, &net.DNSError{Err: "no such host", Name: "n3", IsNotFound: true}
		}
		return addresses, nil
	}
}

// A host is reachable at some addresses.
type host struct {
	at []string // HOST:PORT

	mu    sync.Mutex // guards what follows
	tried []string   // in the order of their attempts
	open  int        // connections that are not closed
}

// connect connects to an address of the host, and hangs at others of 10.9.0.0/16, as that of
// a machine that is gone does. All others refuse.
func (h *host) connect(ctx context.Context, address string) (net.Conn, error) {
	h.mu.Lock()
	h.tried = append(h.tried, address)
	reached := slices.Contains(h.at, address)
	if reached {
		h.open++
	}
	h.mu.Unlock()
	switch {
	case reached:
		return &openConn{host: h}, nil
	case strings.HasPrefix(address, "10.9."):
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// openConn is a connection to a host.
type openConn struct {
	net.Conn
	host *host
}

// Close implements net.Conn.
func (c *openConn) Close() error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.host.open--
	return nil
}

// newTestDialer returns a dialer that knows n3 at an address, if there is one.
func newTestDialer(t *testing.T, h *host, known string, answers ...func(context.Context) ([]string, error)) (d *Dialer, s *nameServer) {
	t.Helper()
	s = &nameServer{answers: answers}
	d = NewDialer()
	d.connect = h.connect
	if known != "" {
		d.names.lookup = func(context.Context, string) ([]string, error) { return []string{known}, nil }
		_, answered := d.names.refresh(t.Context(), "n3")
		<-answered
	}
	d.names.lookup = s.lookup
	return d, s
}

// timed dials n3:7460 and returns how long that took. Lookups that are still in flight end.
func timed(t *testing.T, d *Dialer) (took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	conn, err := d.Dial(ctx, "n3:7460")
	took = time.Since(began)
	if err == nil {
		err = conn.Close()
	}
	return took, err
}

func TestAReturningPeerIsReachedBehindASlowNameServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known   string
		at      []string
		answers []func(context.Context) ([]string, error)
		tried   []string
		within  time.Duration
	}{
		"at its known address, without an answer": {
			"10.0.0.3",
			[]string{"10.0.0.3:7460"},
			[]func(context.Context) ([]string, error){silent},
			[]string{"10.0.0.3:7460"},
			headStart,
		},
		"at its known address, after an error": {
			"10.0.0.3",
			[]string{"10.0.0.3:7460"},
			[]func(context.Context) ([]string, error){after(time.Millisecond)},
			[]string{"10.0.0.3:7460"},
			time.Millisecond,
		},
		"at another address, by a second lookup": {
			"10.9.0.3",
			[]string{"10.0.0.4:7460"},
			[]func(context.Context) ([]string, error){silent, after(time.Millisecond, "10.0.0.4")},
			[]string{"10.9.0.3:7460", "10.0.0.4:7460"},
			lookupInterval + time.Millisecond,
		},
		"for the first time, by a second lookup": {
			"",
			[]string{"10.0.0.4:7460"},
			[]func(context.Context) ([]string, error){silent, after(time.Millisecond, "10.0.0.4")},
			[]string{"10.0.0.4:7460"},
			lookupInterval + time.Millisecond,
		},
		"at a new address, as an answer in time says": {
			"10.0.0.3",
			[]string{"10.0.0.3:7460", "10.0.0.4:7460"},
			[]func(context.Context) ([]string, error){after(time.Millisecond, "10.0.0.4")},
			[]string{"10.0.0.4:7460"},
			time.Millisecond,
		},
		"at its second address": {
			"",
			[]string{"10.0.0.5:7460"},
			[]func(context.Context) ([]string, error){after(0, "10.0.0.4", "10.0.0.5")},
			[]string{"10.0.0.4:7460", "10.0.0.5:7460"},
			0,
		},
		"at its second address, if the first one hangs": {
			"",
			[]string{"10.0.0.5:7460"},
			[]func(context.Context) ([]string, error){after(0, "10.9.0.4", "10.0.0.5")},
			[]string{"10.9.0.4:7460", "10.0.0.5:7460"},
			nextAddress,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &host{at: c.at}
				d, _ := newTestDialer(t, h, c.known, c.answers...)
				took, err := timed(t, d)
				if err != nil || took > c.within {
					t.Errorf("it took %v, want at most %v: %v", took, c.within, err)
				}
				if !slices.Equal(h.tried, c.tried) || h.open != 0 {
					t.Errorf("tried %v, want %v; %d connections are left open", h.tried, c.tried, h.open)
				}
				time.Sleep(lookupTimeout) // virtual time
			})
		})
	}
}

func TestAPeerThatRefusesIsReportedThoughItsNameServerIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		d, s := newTestDialer(t, h, "10.0.0.3", silent)
		took, err := timed(t, d)
		if !errors.Is(err, syscall.ECONNREFUSED) || took > lookupInterval {
			t.Errorf("after %v: %v", took, err)
		}
		for range 100 {
			if _, err := timed(t, d); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
		}
		if most := int64(103); s.asked.Load() > most {
			t.Errorf("%d lookups, want at most %d: one in %v", s.asked.Load(), most, lookupInterval)
		}
		time.Sleep(lookupTimeout) // virtual time
	})
}

func TestANameWithoutAnAddressIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newTestDialer(t, &host{}, "", after(time.Millisecond))
		took, err := timed(t, d)
		if _, ok := errors.AsType[*net.DNSError](err); !ok || took > time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestACallForANameWithoutAnAnswerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := newTestDialer(t, &host{}, "", silent)
		took, err := timed(t, d)
		if !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second || s.asked.Load() > 21 {
			t.Errorf("after %v and %d lookups: %v", took, s.asked.Load(), err)
		}
		time.Sleep(lookupTimeout) // virtual time
	})
}

func TestAnAddressWithoutANameIsNotLookedUp(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"10.0.0.3:7460", "[::1]:7460", "[fe80::1%eth0]:7460", ":7460"} {
		h := &host{at: []string{address}}
		d, s := newTestDialer(t, h, "", silent)
		conn, err := d.Dial(t.Context(), address)
		if err != nil || s.asked.Load() > 0 {
			t.Errorf("%s: %d lookups: %v", address, s.asked.Load(), err)
			continue
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

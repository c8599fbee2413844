package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guard is longer than any operation here takes; short is long enough to show that
// nothing arrives.
const (
	guard = 20 * time.Second
	short = 100 * time.Millisecond
)

// An echo is a target that sends back what it receives.
type echo struct {
	listener net.Listener
	group    sync.WaitGroup
	deaf     chan struct{} // closed when it accepts no more connections
	mu       sync.Mutex
	conns    []net.Conn
}

func startEcho(t *testing.T, addr string) *echo {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: listener, deaf: make(chan struct{})}
	e.group.Go(func() {
		defer close(e.deaf)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, conn)
			e.mu.Unlock()
			e.group.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(e.stop)
	return e
}

// stop ends the target: its port is closed, then its connections.
func (e *echo) stop() {
	_ = e.listener.Close()
	<-e.deaf
	e.mu.Lock()
	for _, c := range e.conns {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.group.Wait()
}

func open(t *testing.T) (*Link, *echo) {
	t.Helper()
	e := startEcho(t, "127.0.0.1:0")
	l, err := Open(t.Context(), "127.0.0.1:0", e.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, e
}

func dial(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	conn, err := tryDial(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func tryDial(ctx context.Context, l *Link) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: guard}
	conn, err := d.DialContext(ctx, "tcp", l.Addr())
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(guard))
	return conn.(*net.TCPConn), nil
}

func set(t *testing.T, l *Link, r Rules) {
	t.Helper()
	if err := l.Set(r); err != nil {
		t.Fatal(err)
	}
}

// roundTrip sends text and expects it back.
func roundTrip(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("echo: got %d bytes, %v", len(got), err)
	}
	if string(got) != text {
		t.Fatalf("echo: got %q, want %q", got, text)
	}
}

// silent expects that nothing arrives for a short time.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(short))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v; want silence", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(guard))
}

// await waits until a condition holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(guard); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: not within %v", what, guard)
		}
	}
}

// accepted waits until a link has accepted its first connection, which it may not serve yet.
func accepted(t *testing.T, l *Link) {
	t.Helper()
	await(t, "a connection is accepted", func() bool { return l.Stats().Accepted == 1 })
}

// broken expects a reset.
func broken(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reading: got %v, want a reset", err)
	}
}

func TestALinkPassesBytesBothWays(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	big := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<14))
	go func() { _, _ = conn.Write([]byte(big)) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != big {
		t.Fatalf("reading echo: %v", err)
	}
	if s := l.Stats(); s.Accepted != 1 || s.Open != 1 || s.Forward != int64(len(big)) || s.Back != s.Forward {
		t.Errorf("got stats %+v", s)
	}
}

func TestClosingOneDirectionKeepsTheOtherOpen(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	if _, err := conn.Write([]byte("last bytes")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "last bytes" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestACutLinkIsSilentAndResumesWhenHealed(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	old := dial(t, l)
	roundTrip(t, old, "before")
	set(t, l, Cut())
	fresh := dial(t, l)
	for _, conn := range []net.Conn{old, fresh} {
		if _, err := conn.Write([]byte("during")); err != nil {
			t.Fatal(err)
		}
		silent(t, conn)
	}
	set(t, l, Rules{})
	for _, conn := range []net.Conn{old, fresh} {
		got := make([]byte, len("during"))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "during" {
			t.Fatalf("after healing: got %q, %v", got, err)
		}
	}
}

func TestOneDirectionCanBeLostAlone(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]Rules{"deaf": Deaf(), "dumb": Dumb()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := open(t)
			conn := dial(t, l)
			roundTrip(t, conn, "both")
			before := l.Stats()
			set(t, l, rules)
			if _, err := conn.Write([]byte("one")); err != nil {
				t.Fatal(err)
			}
			silent(t, conn)
			// Bytes read before the rule applies are kept: the target receives them
			// only if its own direction is open, when the link reaches them.
			reached := func() int64 { return l.Stats().Forward - before.Forward }
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(guard); !rules.Forward.Stall && reached() < 3 && time.Now().Before(deadline); {
				<-tick.C
			}
			if got, want := reached(), int64(0); rules.Forward.Stall && got != want {
				t.Errorf("got %d bytes at the target", got)
			} else if !rules.Forward.Stall && got != 3 {
				t.Errorf("got %d bytes at the target, want 3", got)
			}
			silent(t, conn)
		})
	}
}

func TestSwallowedBytesAreLostAndTheConnectionIsResetAfterwards(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	roundTrip(t, conn, "before")
	set(t, l, Swallow())
	if _, err := conn.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	await(t, "4 bytes are dropped", func() bool { return l.Stats().Dropped == 4 })
	silent(t, conn)
	set(t, l, Rules{})
	if _, err := conn.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	broken(t, conn)
	if n := l.Stats().Resets; n != 1 {
		t.Errorf("got %d resets, want 1", n)
	}
}

func TestALinkCanRefuseOrResetConnections(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	roundTrip(t, conn, "before")
	set(t, l, Gone())
	if n := l.ResetAll(); n != 1 {
		t.Errorf("got %d reset connections, want 1", n)
	}
	broken(t, conn)
	if _, err := tryDial(t.Context(), l); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing: got %v, want refused", err)
	}
	set(t, l, Rules{Reset: true})
	if conn, err := tryDial(t.Context(), l); err == nil {
		broken(t, conn)
	} else if !errors.Is(err, syscall.ECONNRESET) { // it was reset before the dial returned
		t.Error(err)
	}
	set(t, l, Rules{})
	roundTrip(t, dial(t, l), "after")
}

// A connection that was accepted just before could stay open through a link that was gone.
func TestAConnectionThatIsNewIsResetWithTheOthers(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	accepted(t, l)
	set(t, l, Gone())
	l.ResetAll()
	broken(t, conn)
}

// A connection that was accepted just before could wait for other rules forever, and Close for it.
func TestALinkThatIsMuteCanBeClosed(t *testing.T) {
	t.Parallel()
	e := startEcho(t, "127.0.0.1:0")
	l, err := Open(t.Context(), "127.0.0.1:0", e.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	set(t, l, Cut())
	conn := dial(t, l)
	accepted(t, l)
	closed := make(chan error, 1) // size 1: the result of Close
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(guard):
		t.Fatal("the link is not closed")
	}
	broken(t, conn)
}

func TestLatencyIsAddedInEachDirectionAndPreservesOrder(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	set(t, l, Slow(30*time.Millisecond, 20*time.Millisecond))
	began := time.Now()
	for _, word := range []string{"one", "two", "three"} {
		if _, err := conn.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len("onetwothree"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "onetwothree" {
		t.Fatalf("got %q, %v", got, err)
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("a round trip took %v, want at least twice the delay", took)
	}
}

func TestARateIsAnUpperLimit(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	set(t, l, Rules{Forward: Flow{Rate: 2000, Slice: 100}})
	began := time.Now()
	roundTrip(t, conn, string(make([]byte, 500)))
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("500 bytes at 2000/s took %v, want at least 200ms", took)
	}
}

func TestAConnectionIsCutAfterItsBytes(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	conn := dial(t, l)
	roundTrip(t, conn, "a long introduction")
	set(t, l, Rules{Forward: Flow{CutAfter: 5, Slice: 1}})
	if _, err := conn.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	broken(t, conn)
	if got := l.Stats().Forward; got != int64(len("a long introduction"))+5 {
		t.Errorf("got %d bytes at the target", got)
	}
}

func TestALinkRefusesConnectionsWhileItsTargetDoesNotListen(t *testing.T) {
	t.Parallel()
	l, e := open(t)
	conn := dial(t, l)
	roundTrip(t, conn, "alive")
	addr := e.listener.Addr().String()
	e.stop()
	_, _ = io.Copy(io.Discard, conn) // returns when the end of the target is observed
	if _, err := tryDial(t.Context(), l); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dialing a link to a closed target: got %v, want refused", err)
	}
	startEcho(t, addr)
	deadline := time.Now().Add(guard)
	for {
		back, err := tryDial(t.Context(), l)
		if err == nil {
			roundTrip(t, back, "again")
			_ = back.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestAFlappingLinkHealsAtItsEnd(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := l.Flap(ctx, Gone(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, dial(t, l), "after")
}

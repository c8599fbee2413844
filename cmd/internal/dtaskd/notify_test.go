package dtaskd

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Not parallel: the environment belongs to the process.
func TestTheServiceManagerLearnsThatTheCoordinatorIsReadyAliveAndStopping(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	if err := manager.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	// A report each second: the socket keeps those of ten seconds in which this test does not
	// run, and one that does not fit is dropped.
	t.Setenv("WATCHDOG_USEC", "4000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	// The other two members don't run: a service manager must neither wait for a leader
	// nor restart a coordinator that has none.
	args := []string{
		"--id", "n1", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:1", "--http", "",
		"--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3", "--min-free-bytes", "0", "--log-level", "error",
	}
	go func() { code <- run(ctx, args, io.Discard, io.Discard) }()
	for ready, alive := 0, 0; ready < 1 || alive < 3; {
		switch got := receive(t, manager); got {
		case "READY=1":
			ready++
		case "WATCHDOG=1":
			alive++
		default:
			t.Fatalf("received %q", got)
		}
	}
	cancel()
	for got := ""; got != "STOPPING=1"; {
		if got = receive(t, manager); got != "WATCHDOG=1" && got != "STOPPING=1" {
			t.Fatalf("received %q", got)
		}
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
}

func receive(t *testing.T, from *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 256)
	n, err := from.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

package sdnotify

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager is the socket of a service manager, for which the environment is set.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv(socketVariable, name)
	t.Setenv(intervalVariable, "10000000")
	t.Setenv(processVariable, strconv.Itoa(os.Getpid()))
	return conn
}

func TestEachStateReachesTheServiceManager(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@dtask-test-" + strconv.Itoa(os.Getpid())} {
		conn := manager(t, name)
		n, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Watchdog(); got != 10*time.Second {
			t.Errorf("the watchdog waits %v, want 10s", got)
		}
		if _, set := os.LookupEnv(socketVariable); set {
			t.Error("programs that this process starts have the socket")
		}
		for want, report := range map[string]func() error{"READY=1": n.Ready, "WATCHDOG=1": n.Alive, "STOPPING=1": n.Stopping} {
			if err := report(); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 64)
			length, err := conn.Read(got)
			if err != nil || string(got[:length]) != want {
				t.Errorf("received %q, %v, want %q", got[:length], err, want)
			}
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The process was stopped until the first deadline was over.
func TestAReportIsNotLostIfTheProcessIsStoppedBeforeIt(t *testing.T) {
	conn := manager(t, filepath.Join(t.TempDir(), "notify"))
	n, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	first := true
	n.now = func() time.Time {
		defer func() { first = false }()
		if first {
			return time.Now().Add(-time.Minute)
		}
		return time.Now()
	}
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 64)
	if length, err := conn.Read(got); err != nil || string(got[:length]) != ready {
		t.Errorf("received %q, %v, want %q", got[:length], err, ready)
	}
}

func TestTheWatchdogOfAnotherProcessIsIgnored(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(processVariable, "1")
	n, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Watchdog(); got != 0 {
		t.Errorf("the watchdog waits %v, want 0", got)
	}
}

func TestWithoutAServiceManagerNothingHappens(t *testing.T) {
	t.Setenv(socketVariable, "")
	n, err := Open()
	if n != nil || err != nil {
		t.Fatalf("got %v, %v", n, err)
	}
	for _, report := range []func() error{n.Ready, n.Alive, n.Stopping, n.Close} {
		if err := report(); err != nil {
			t.Error(err)
		}
	}
	if n.Watchdog() != 0 {
		t.Error("there is a watchdog")
	}
}

func TestAnInvalidEnvironmentIsReported(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(intervalVariable, "soon")
	if _, err := Open(); err == nil || !strings.Contains(err.Error(), `invalid WATCHDOG_USEC "soon"`) {
		t.Errorf("got %v", err)
	}
	t.Setenv(socketVariable, filepath.Join(t.TempDir(), "missing"))
	if _, err := Open(); err == nil || !strings.Contains(err.Error(), "NOTIFY_SOCKET") {
		t.Errorf("got %v", err)
	}
}

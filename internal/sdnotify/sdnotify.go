// Package sdnotify reports the state of this process to the service manager that started
// it, by the protocol of sd_notify(3). It starts no goroutines. Without a service manager,
// everything in it does nothing.
package sdnotify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// The environment variables of the protocol.
const (
	socketVariable   = "NOTIFY_SOCKET"
	intervalVariable = "WATCHDOG_USEC"
	processVariable  = "WATCHDOG_PID"
)

// The states that a service manager knows.
const (
	ready    = "READY=1"
	alive    = "WATCHDOG=1"
	stopping = "STOPPING=1"
)

// Notifier reports to the service manager. A nil Notifier reports to nobody.
type Notifier struct {
	conn     *net.UnixConn
	watchdog time.Duration
	now      func() time.Time
}

// Open returns a Notifier for the service manager that started this process, or nil
// without one. It removes the variables of the protocol from the environment, so that the
// programs that this process starts don't report in its name.
func Open() (*Notifier, error) {
	address, interval, process := os.Getenv(socketVariable), os.Getenv(intervalVariable), os.Getenv(processVariable)
	for _, name := range []string{socketVariable, intervalVariable, processVariable} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("unsetting %s: %w", name, err)
		}
	}
	if address == "" {
		return nil, nil //nolint:nilnil // a nil Notifier is usable
	}
	n := &Notifier{now: time.Now}
	if interval != "" && (process == "" || process == strconv.Itoa(os.Getpid())) {
		usec, err := strconv.ParseInt(interval, 10, 64)
		if err != nil || usec <= 0 {
			return nil, fmt.Errorf("invalid %s %q: must be microseconds", intervalVariable, interval)
		}
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	// A leading @ is the abstract namespace, also for package net.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("connecting to the service manager at %s: %w", socketVariable, err)
	}
	n.conn = conn
	return n, nil
}

// Watchdog returns the time after which the service manager ends a process that doesn't
// call Alive; 0 if it waits forever.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// Ready reports that the start is complete.
func (n *Notifier) Ready() error { return n.send(ready) }

// Alive reports that the process works.
func (n *Notifier) Alive() error { return n.send(alive) }

// Stopping reports that the process ends.
func (n *Notifier) Stopping() error { return n.send(stopping) }

// sendTimeout bounds a report, which waits if the service manager reads nothing.
const sendTimeout = time.Second

// sendTries is how often a report is tried: this process may have been stopped between
// setting the deadline and writing, which is not tried then.
const sendTries = 2

func (n *Notifier) send(state string) error {
	if n == nil {
		return nil
	}
	err := os.ErrDeadlineExceeded
	for tries := 0; tries < sendTries && errors.Is(err, os.ErrDeadlineExceeded); tries++ {
		if err = n.conn.SetWriteDeadline(n.now().Add(sendTimeout)); err == nil {
			_, err = n.conn.Write([]byte(state))
		}
	}
	if err != nil {
		return fmt.Errorf("reporting %s to the service manager: %w", state, err)
	}
	return nil
}

// Close closes the connection to the service manager.
func (n *Notifier) Close() error {
	if n == nil {
		return nil
	}
	if err := n.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the connection to the service manager: %w", err)
	}
	return nil
}

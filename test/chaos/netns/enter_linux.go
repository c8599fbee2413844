package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaces is where the ip command keeps network namespaces.
const namespaces = "/run/netns"

// Dial connects the test to a TCP address, IP:PORT, as a process of the host does.
func (h *Host) Dial(ctx context.Context, address string) (conn net.Conn, err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("dialing from %s: %w", h.Name, err)
	}
	err = within(h.ns, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address) // opens the socket in this goroutine
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dialing from %s: %w", h.Name, err)
	}
	return conn, nil
}

// Namespace is the link that /proc/PID/ns/net has for processes of the host.
func (h *Host) Namespace() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(namespaces, h.ns), &st); err != nil {
		return "", fmt.Errorf("finding the network namespace of %s: %w", h.Name, err)
	}
	return fmt.Sprintf("net:[%d]", st.Ino), nil
}

// within calls f on a thread that is in a network namespace, where its sockets stay. The
// thread returns afterwards: threads must not end, because the kernel would kill the
// processes that they have started.
func within(ns string, f func() error) error {
	done := make(chan error, 1) // the goroutine sends once
	go func() {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = enter(filepath.Join(namespaces, ns))
		if err == nil {
			err = f()
		}
		back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread() // else the runtime ends the thread with the goroutine
		}
		done <- errors.Join(err, back, own.Close())
	}()
	return <-done
}

// enter puts this thread into a network namespace.
func enter(path string) error {
	target, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Setns(int(target.Fd()), unix.CLONE_NEWNET), target.Close())
}

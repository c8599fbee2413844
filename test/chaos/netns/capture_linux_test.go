package netns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// machines makes a network of machines with some hosts.
func machines(t *testing.T, names ...string) *Network {
	t.Helper()
	if err := Available(t.Context()); err != nil {
		t.Skip(err)
	}
	n, err := NewMachines(t.Context())
	must(t, err)
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		_, err := n.Add(t.Context(), name)
		must(t, err)
	}
	return n
}

// A text passes between two machines, in many segments.
func TestACaptureHasAllThatMachinesSend(t *testing.T) {
	t.Parallel()
	n := machines(t, "a", "b")
	c, err := n.Capture()
	must(t, err)
	text := bytes.Repeat([]byte("canary-0123456789\n"), 100_000)

	var listener net.Listener
	must(t, within(n.hosts["b"].ns, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", n.hosts["b"].IP+":7460")
		return err
	}))
	received := make(chan []byte, 1)
	go func() { // ends with the connection, or the listener
		conn, err := listener.Accept()
		if err != nil {
			received <- nil
			return
		}
		got, _ := io.ReadAll(conn)
		_ = conn.Close()
		received <- got
	}()
	conn, err := n.hosts["a"].Dial(t.Context(), n.hosts["b"].IP+":7460")
	must(t, err)
	_, err = conn.Write(text)
	must(t, errors.Join(err, conn.Close()))
	if got := <-received; !bytes.Equal(got, text) {
		t.Errorf("b received %d bytes of %d", len(got), len(text))
	}
	must(t, listener.Close())

	streams, _, err := c.Stop()
	must(t, err)
	found := false
	for _, s := range streams {
		found = found || bytes.Equal(s.Data, text) && s.From.Addr().String() == n.hosts["a"].IP && s.To.Port() == 7460
	}
	if !found {
		t.Errorf("the text is not among the %d streams of the capture", len(streams))
	}
}

// Neither the test nor anything else outside shares the network of machines.
func TestMachinesReachEachOtherAndNothingElse(t *testing.T) {
	t.Parallel()
	n := machines(t, "a", "b")
	reaches(t, n, true)
	show := append(n.hosts["a"].Prefix(), "ip", "route", "get", "192.0.2.1")
	if out, err := exec.CommandContext(t.Context(), show[0], show[1:]...).CombinedOutput(); err == nil || !strings.Contains(string(out), "unreachable") {
		t.Errorf("a machine has a route to others: %v, %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if links, err := exec.CommandContext(ctx, "ip", "link", "show").Output(); err != nil || strings.Contains(string(links), n.id) {
		t.Errorf("the namespace of the test has a part of the network: %v, %s", err, links)
	}
}

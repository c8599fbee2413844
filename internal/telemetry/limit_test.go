package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testTimeout bounds every wait; it guards against hanging and measures nothing.
const testTimeout = time.Minute

// served serves the metrics until the test ends.
func served(t *testing.T) *LimitedListener {
	t.Helper()
	base, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(base)
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ended below
	done := make(chan error, 1)                             // size 1: the result of Serve
	quiet := slog.New(slog.DiscardHandler)
	go func() { done <- Serve(ctx, l, Handler(NewRegistry("v1"), quiet), quiet) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(testTimeout))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hold opens a connection that stays open until the test ends: the server closes one that
// has had no answer after seconds, and one that has had one after minutes.
func hold(t *testing.T, l *LimitedListener) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; {
		conn := connect(t, l)
		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if err == nil {
			var response *http.Response
			if response, err = http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_ = response.Body.Close() // it has no more to say
				return
			}
		}
		if l.Refused() > 0 || time.Now().After(end) {
			t.Fatalf("a connection is not served: %v", err)
		}
	}
}

func TestConnectionsForMetricsAreLimited(t *testing.T) {
	t.Parallel()
	l := served(t)
	for range maxConns {
		hold(t, l)
	}
	extra := connect(t, l)
	if _, err := extra.Read(make([]byte, 1)); err == nil {
		t.Error("one more than allowed is served")
	}
	if n := l.Refused(); n != 1 {
		t.Errorf("%d were refused", n)
	}
}

// Requests that arrive slowly, and connections that say nothing, are closed.
func TestSlowAndHugeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	l := served(t)
	silent, slow, huge := connect(t, l), connect(t, l), connect(t, l)
	if _, err := io.WriteString(slow, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "); err != nil {
		t.Fatal(err)
	}
	// The answer may come before all of it is sent.
	_, _ = fmt.Fprintf(huge, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	if line, err := bufio.NewReader(huge).ReadString('\n'); err == nil && !strings.Contains(line, "431") {
		t.Errorf("huge headers: got %q", line)
	}
	for _, conn := range []net.Conn{silent, slow} {
		answer, err := io.ReadAll(conn)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // of a net.Conn
			t.Error("a connection stays open")
		}
		if strings.Contains(string(answer), "200 OK") {
			t.Errorf("got %q", answer)
		}
	}
}

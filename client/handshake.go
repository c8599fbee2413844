package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/tlsconf"
)

// diagnosisTimeout bounds the look at how a coordinator secures connections.
const diagnosisTimeout = time.Second

// An untrustedError is the error of a connection that must not be used, and that another
// attempt would not change: the other end is not trusted, this machine's clock is wrong,
// or only one side uses TLS.
type untrustedError struct{ err error }

// Error implements error.
func (e *untrustedError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *untrustedError) Unwrap() error { return e.err }

// kind returns the kind of the error.
func (e *untrustedError) kind() error {
	if _, clock := errors.AsType[*tlsconf.DateError](e.err); clock {
		return ErrClock
	}
	return ErrUntrusted
}

// handshakes has the results of the last connects by address. gRPC reports them as
// text only.
type handshakes struct {
	mu   sync.Mutex
	last map[string]error // an *untrustedError, or errMute; without an entry: no such fault
}

// errMute is recorded if the other end closed a connection before it sent a byte, as it
// does if it expects TLS and the client uses none, or the other way round. It may also
// have been stopped.
var errMute = errors.New("the coordinator closed the connection without an answer")

// note records the result of a connect to addr.
func (h *handshakes) note(addr string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.last, addr)
		return
	}
	if h.last == nil {
		h.last = make(map[string]error)
	}
	h.last[addr] = err
}

func (h *handshakes) get(addr string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[addr]
}

// notingCredentials note the errors of handshakes.
type notingCredentials struct {
	credentials.TransportCredentials

	addr  string
	notes *handshakes
}

// ClientHandshake implements credentials.TransportCredentials.
func (n notingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if n.Info().SecurityProtocol == "insecure" {
		raw = &firstRead{Conn: raw, note: func(err error) { n.notes.note(n.addr, err) }}
	}
	conn, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, raw)
	switch {
	case err == nil:
		n.notes.note(n.addr, nil)
	case ctx.Err() == nil:
		n.notes.note(n.addr, handshakeFault(err))
	}
	return conn, info, err //nolint:wrapcheck // gRPC wraps it
}

// Clone implements credentials.TransportCredentials.
func (n notingCredentials) Clone() credentials.TransportCredentials {
	n.TransportCredentials = n.TransportCredentials.Clone()
	return n
}

// handshakeFault returns what to record of the error of a TLS handshake; nil for errors
// that another attempt may not have.
func handshakeFault(err error) error {
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return &untrustedError{err: errNoTLS}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errMute
	}
	// Alerts of the other end are errors of this type, too.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op != "remote error" || errors.Is(err, net.ErrClosed) {
		return errMute
	}
	return &untrustedError{err: err}
}

var (
	errNoTLS   = errors.New("the coordinator does not use TLS, and this client has a CA: check the address; for a cluster on loopback, use no CA and no context")
	errNeedTLS = errors.New("the coordinator uses TLS, and this client has no CA: log in with dtaskctl login, or set --ca-file")
)

// firstRead notes whether a plaintext connection ended before the other end sent a byte,
// or answered with a TLS record. One goroutine reads.
type firstRead struct {
	net.Conn

	note func(error)
	done bool
}

// Read implements net.Conn.
func (f *firstRead) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if !f.done {
		f.done = true
		const tlsAlert = 0x15
		switch {
		case n > 0 && p[0] == tlsAlert:
			f.note(&untrustedError{err: errNeedTLS})
		case n == 0 && err != nil && !errors.Is(err, net.ErrClosed):
			f.note(errMute)
		}
	}
	return n, err //nolint:wrapcheck // net.Conn's
}

// diagnose returns the *untrustedError or *socketError of a connection to addr that failed,
// or nil if another attempt may succeed. If the other end was mute, it asks it in the way that the
// client doesn't use. It sends no secret.
func (c *Client) diagnose(ctx context.Context, addr string) error {
	if path, ok := socketPath(addr); ok {
		return c.diagnoseSocket(ctx, addr, path)
	}
	err := c.handshakes.get(addr)
	if !errors.Is(err, errMute) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	raw, err := c.cfg.Dial(ctx, addr)
	if err != nil {
		return nil // it was stopped, then
	}
	defer func() { _ = raw.Close() }() // nothing is sent that matters
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fault := errNeedTLS
	ask := speaksTLS
	if c.secured() {
		fault, ask = errNoTLS, speaksPlaintext
	}
	if !ask(raw) {
		return nil
	}
	untrusted := &untrustedError{err: fault}
	c.handshakes.note(addr, untrusted)
	return untrusted
}

// speaksTLS reports whether the other end completes a TLS handshake.
func speaksTLS(raw net.Conn) bool {
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, //nolint:gosec // the connection is closed at once
	})
	return conn.Handshake() == nil //nolint:noctx // the deadline ends it
}

// speaksPlaintext reports whether the other end serves calls without TLS: it answers the
// preface of HTTP/2 with the settings of a gRPC server, RFC 9113 §3.4. A port that requires
// TLS has no settings: it answers only to refuse calls, see transport.Mux.
func speaksPlaintext(raw net.Conn) bool {
	const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 4
	if _, err := raw.Write(append([]byte(preface), 0, 0, 0, settings, 0, 0, 0, 0, 0)); err != nil {
		return false
	}
	header := make([]byte, 9)
	_, err := io.ReadFull(raw, header)
	hasSettings := header[0]|header[1]|header[2] != 0 // the frame's length
	return err == nil && header[3] == settings && hasSettings
}

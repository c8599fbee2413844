package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A rawClient writes frames of HTTP/2 that no library writes.
type rawClient struct {
	*http2.Framer
	conn   *tls.Conn
	fields bytes.Buffer // what encoder writes
	codec  *hpack.Encoder
	calls  uint32 // that were opened
}

// stream is the stream of the last call: those of clients have odd numbers.
func (c *rawClient) stream() uint32 { return 2*c.calls - 1 }

// dialSecured completes a handshake with a coordinator. Like every client it dials again: on a
// loaded machine a handshake may take longer than the coordinator waits for it.
func dialSecured(ctx context.Context, addr string, cfg *tls.Config) (*tls.Conn, error) {
	for {
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
		if secured, ok := conn.(*tls.Conn); ok && err == nil {
			return secured, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// dialHTTP2 opens a connection of HTTP/2 that gRPC serves.
func dialHTTP2(ctx context.Context, addr string, cfg *tls.Config) (conn *tls.Conn, frames *http2.Framer, err error) {
	for {
		if conn, err = dialSecured(ctx, addr, cfg); err != nil {
			return nil, nil, err
		}
		frames = http2.NewFramer(conn, conn)
		if _, err = io.WriteString(conn, http2.ClientPreface); err == nil {
			err = frames.WriteSettings()
		}
		if err == nil {
			_, err = frames.ReadFrame() // the settings of the server
		}
		if err == nil {
			return conn, frames, nil
		}
		_ = conn.Close() // what failed is known
		if ctx.Err() != nil {
			return nil, nil, err
		}
	}
}

// dialRaw opens a connection of HTTP/2 that ends with the test, and at the latest after
// hostileTimeout.
func (a *attacked) dialRaw(t *testing.T) *rawClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
	defer cancel()
	conn, frames, err := dialHTTP2(ctx, a.address, a.trust.Config(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(hostileTimeout)); err != nil {
		t.Fatal(err)
	}
	c := &rawClient{conn: conn, Framer: frames}
	c.codec = hpack.NewEncoder(&c.fields)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return c
}

// rawCall is a request.
type rawCall struct {
	path  string
	token string
	extra []hpack.HeaderField
	data  []byte // see message
}

const whoAmI = "/dtask.v1.AuthService/WhoAmI"

// encode returns the fields of the headers of a call.
func (c *rawClient) encode(x rawCall) []byte {
	c.fields.Reset()
	fields := []hpack.HeaderField{
		field(":method", "POST"), field(":scheme", "https"), field(":path", x.path), field(":authority", "dtask"),
		field("content-type", "application/grpc"), field("te", "trailers"),
	}
	if x.token != "" {
		fields = append(fields, field("authorization", x.token))
	}
	for _, f := range append(fields, x.extra...) {
		_ = c.codec.WriteField(f) // into memory
	}
	return bytes.Clone(c.fields.Bytes())
}

const frameSize = 16 << 10 // that every server accepts

// open sends the headers of a call.
func (c *rawClient) open(x rawCall) error {
	c.calls++
	id := c.stream()
	block := c.encode(x)
	first := block[:min(len(block), frameSize)]
	block = block[len(first):]
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0})
	for len(block) > 0 && err == nil {
		part := block[:min(len(block), frameSize)]
		block = block[len(part):]
		err = c.WriteContinuation(id, len(block) == 0, part)
	}
	return err
}

// do sends a call and returns how it ended: its status of gRPC, or how the stream or the
// connection ended.
func (c *rawClient) do(x rawCall) (end string) {
	err := c.open(x)
	if err == nil {
		err = c.WriteData(c.stream(), true, x.data)
	}
	if err != nil {
		return ended(err)
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return ended(err)
		}
		if frame.Header().StreamID != c.stream() {
			continue
		}
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			return f.ErrCode.String()
		case *http2.MetaHeadersFrame:
			for _, field := range f.RegularFields() {
				if field.Name == "grpc-status" {
					return "grpc-status " + field.Value
				}
			}
		}
	}
}

// closed is the end of a connection that the other end has closed.
const closed = "closed"

func ended(err error) string {
	if isTimeout(err) {
		return err.Error()
	}
	return closed
}

// flood opens calls and resets them, until all are sent or the other end closes the
// connection. What it is sent is read, as by an attacker that wants more of it.
func (c *rawClient) flood(ctx context.Context, x rawCall, times int) error {
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, c.conn) // until the connection ends
	}()
	var err error
	for range times {
		if err = cmp.Or(ctx.Err(), c.open(x)); err == nil {
			err = c.WriteRSTStream(c.stream(), http2.ErrCodeCancel)
		}
		if err != nil {
			break
		}
	}
	err = errors.Join(err, c.conn.Close())
	<-read
	return err
}

// message is a message of gRPC, compressed or not.
func message(compressed bool, body []byte) []byte {
	flag := byte(0)
	if compressed {
		flag = 1
	}
	n := len(body)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...) //nolint:gosec // the length in four bytes
}

// field is a header.
func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

// many are different headers.
func many(n int) (fields []hpack.HeaderField) {
	for i := range n {
		fields = append(fields, field(fmt.Sprintf("x-%d", i), "some value"))
	}
	return fields
}

package coordinator

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A cluster answers well-behaved clients and keeps its leader whatever others send it. Not
// parallel: the attackers would take the time of other tests.
func TestHostileClientsDisturbNobody(t *testing.T) {
	a := newAttacked(t)
	a.under("malformed calls", a.sendMalformedCalls)
	a.under("headers without end", a.sendHeadersWithoutEnd)
	a.under("reset floods", a.floodWithResets)
	a.under("idle and half handshakes", a.openHandshakes)
}

// A connection with a call that goes slowly is closed after 20 s, times the scale, longer than
// followers wait for their leader. The attack costs next to no time of the CPU and none of the
// disk. A machine that other tests load can delay heartbeats by 3 s, and a write to the log by
// 1.5 s, without any attack: then a cluster that is not patient changes its leader.
func TestClientsThatSendSlowlyAreDisconnected(t *testing.T) {
	t.Parallel()
	a := newScaled(t, patience)
	a.under("slow bytes", a.sendSlowly)
}

// sendMalformedCalls sends calls that a library refuses to send. Each one is refused, and
// the coordinator continues to serve.
func (a *attacked) sendMalformedCalls(t *testing.T) {
	t.Helper()
	token := a.token.Header()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 64<<20)) // into memory
	_ = z.Close()
	const (
		served, unauthenticated, unimplemented = "grpc-status 0", "grpc-status 16", "grpc-status 12"
		tooLarge                               = "FRAME_SIZE_ERROR"
	)
	gzipped := []hpack.HeaderField{field("grpc-encoding", "gzip")}
	for name, x := range map[string]struct {
		rawCall
		want string
	}{
		"a good one":                            {rawCall{path: whoAmI, token: token}, served},
		"path without a slash":                  {rawCall{path: whoAmI[1:], token: token}, unimplemented},
		"path without a slash, without a token": {rawCall{path: whoAmI[1:]}, unauthenticated},
		"no path":                               {rawCall{token: token}, unimplemented},
		"only a slash":                          {rawCall{path: "/", token: token}, unimplemented},
		"only slashes":                          {rawCall{path: "///", token: token}, unimplemented},
		"unknown method":                        {rawCall{path: whoAmI + "x", token: token}, unimplemented},
		"unknown method, without a token":       {rawCall{path: whoAmI + "x"}, unauthenticated},
		"unknown service":                       {rawCall{path: "/nosuch.Service/Method", token: token}, unimplemented},
		"a very long path":                      {rawCall{path: "/" + strings.Repeat("x", 32<<10), token: token}, unimplemented},
		"metadata below the limit":              {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("x", strings.Repeat("x", 32<<10))}}, served},
		"one huge field":                        {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("x", strings.Repeat("x", 1<<20))}}, closed},
		"many fields":                           {rawCall{path: whoAmI, token: token, extra: many(20_000)}, closed},
		"compressed, and small":                 {rawCall{path: whoAmI, token: token, extra: gzipped, data: message(true, bomb.Bytes()[:10])}, unimplemented},
		"compressed, 64 MiB of zeros":           {rawCall{path: whoAmI, token: token, extra: gzipped, data: message(true, bomb.Bytes()[:frameSize-5])}, unimplemented},
		"compressed without saying how":         {rawCall{path: whoAmI, token: token, data: message(true, []byte("x"))}, "grpc-status 13"},
		"a message that is longer than it says": {rawCall{path: whoAmI, token: token, data: message(false, nil)[:3]}, "grpc-status 13"},
		"a message of 4 GiB, by what it says":   {rawCall{path: whoAmI, token: token, data: []byte{0, 0xff, 0xff, 0xff, 0xff}}, "grpc-status 8"},
		"a timeout of no form":                  {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("grpc-timeout", "soon")}}, "grpc-status 13"},
		"a token of no form":                    {rawCall{path: whoAmI, token: "Bearer " + strings.Repeat("x", 1000)}, unauthenticated},
		"a few fields more than allowed":        {rawCall{path: whoAmI, extra: many(1500)}, tooLarge},
		"metadata in base64 that it is not":     {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("x-bin", "%%%")}}, "grpc-status 13"},
		"two hosts":                             {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("host", "a"), field("host", "b")}}, "grpc-status 13"},
		"headers of a connection, as in HTTP/1": {rawCall{path: whoAmI, token: token, extra: []hpack.HeaderField{field("connection", "close")}}, "PROTOCOL_ERROR"},
	} {
		if x.data == nil {
			x.data = message(false, nil)
		}
		if got := a.dialRaw(t).do(x.rawCall); got != x.want {
			t.Errorf("%s: got %q, want %q", name, got, x.want)
		}
	}
}

// sendHeadersWithoutEnd sends a header in more and more frames. The connection is closed
// long before it has cost much.
func (a *attacked) sendHeadersWithoutEnd(t *testing.T) {
	t.Helper()
	c := a.dialRaw(t)
	part := c.encode(rawCall{path: whoAmI, extra: many(100)})
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part})
	sent := 0
	for ; err == nil && sent < 10_000; sent++ {
		err = c.WriteContinuation(1, false, part)
	}
	if err == nil {
		t.Errorf("%d frames were accepted", sent)
	}
}

// floodWithResets begins calls and cancels them at once: a hundred thousand of a caller
// without a token, and as many of one whose calls begin to run; four times as many with
// isFullHostile.
func (a *attacked) floodWithResets(t *testing.T) {
	t.Helper()
	const connections = 4
	resets := 25_000
	if isFullHostile() {
		resets = 100_000
	}
	ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
	defer cancel()
	t.Logf("%d connections with %d calls each, with a token and without", connections, resets)
	for name, token := range map[string]string{"without a token": "", "with a token": a.token.Header()} {
		var flooding sync.WaitGroup
		for range connections {
			c := a.dialRaw(t)
			flooding.Go(func() {
				if err := c.flood(ctx, rawCall{path: "/dtask.v1.JobService/ListJobs", token: token}, resets); err != nil {
					t.Logf("%s: a connection ended with %v", name, err)
				}
			})
		}
		flooding.Wait()
	}
}

// openHandshakes opens connections by the thousand: some say nothing, some stop in the
// middle of their hello, and some after it.
func (a *attacked) openHandshakes(t *testing.T) {
	t.Helper()
	hello := helloOf(t, a.trust.Config(nil, nil))
	dialer := net.Dialer{Timeout: hostileTimeout}
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	want := 6000
	if isFullHostile() {
		want = 10_000
	}
	connections := a.spare(want)
	t.Logf("%d connections", connections)
	for i := range connections {
		conn, err := dialer.DialContext(t.Context(), "tcp", a.address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		open = append(open, conn)
		// An error is that of a connection that was closed already.
		_, _ = conn.Write([][]byte{nil, hello[:len(hello)/2], hello}[i%3])
	}
	// All are closed without being served.
	for i, conn := range open {
		if err := conn.SetReadDeadline(time.Now().Add(hostileTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Fatalf("connection %d stays open", i)
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // of a net.Conn
	return ok && timeout.Timeout()
}

// helloOf returns the first bytes of a handshake.
func helloOf(t *testing.T, cfg *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	var handshake sync.WaitGroup
	handshake.Go(func() { _ = tls.Client(near, cfg).HandshakeContext(t.Context()) }) // never answered
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	handshake.Wait()
	return hello[:n]
}

// sendSlowly sends a byte at a time, over hundreds of connections: of the hello, of the
// preface of HTTP/2, and of a call. All are closed: the first two because they take too
// long, the last ones because they don't answer a ping meanwhile.
func (a *attacked) sendSlowly(t *testing.T) {
	t.Helper()
	hello := helloOf(t, a.trust.Config(nil, nil))
	var dribbling sync.WaitGroup
	connections := 3 * a.spare(100)
	t.Logf("%d connections", connections)
	for i := range connections {
		var conn net.Conn
		var rest []byte
		switch i % 3 {
		case 0:
			raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", a.address)
			if err != nil {
				t.Fatal(err)
			}
			conn, rest = raw, hello
		case 1:
			secured, err := dialSecured(t.Context(), a.address, a.trust.Config(nil, nil))
			if err != nil {
				t.Fatal(err)
			}
			conn, rest = secured, []byte(http2.ClientPreface)
		case 2:
			c := a.dialRaw(t)
			block := c.encode(rawCall{path: whoAmI, extra: many(1000)})
			var frame bytes.Buffer
			headers := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:frameSize/2], EndHeaders: true}
			if err := http2.NewFramer(&frame, nil).WriteHeaders(headers); err != nil {
				t.Fatal(err)
			}
			conn, rest = c.conn, frame.Bytes()
		}
		dribbling.Go(func() {
			if !dribble(conn, rest) {
				t.Errorf("a connection of kind %d stays open", i%3)
			}
			_ = conn.Close()
		})
	}
	dribbling.Wait()
}

// dribble sends bytes slowly, and reports whether the other end closed the connection.
func dribble(conn net.Conn, rest []byte) bool {
	closed := make(chan bool, 1) // size 1: the result
	_ = conn.SetDeadline(time.Now().Add(hostileTimeout))
	go func() {
		_, err := io.Copy(io.Discard, conn)
		closed <- !isTimeout(err)
	}()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for ; len(rest) > 0; rest = rest[1:] {
		_, _ = conn.Write(rest[:1]) // the reader notices its end
		select {
		case <-tick.C:
		case ended := <-closed:
			return ended
		}
	}
	return <-closed
}

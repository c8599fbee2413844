package client

import (
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// refuseStreams accepts connections and tells the peer of each that its first stream
// was not processed, which gRPC may repeat on another connection. It counts streams.
func refuseStreams(t *testing.T, l net.Listener) (streams func() int) {
	t.Helper()
	var serving sync.WaitGroup
	var mu sync.Mutex
	n := 0
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }() // has sent all
				if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				f := http2.NewFramer(conn, conn)
				if f.WriteSettings() != nil {
					return
				}
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if _, isHeaders := frame.(*http2.HeadersFrame); !isHeaders {
						continue
					}
					mu.Lock()
					n++
					mu.Unlock()
					if f.WriteGoAway(0, http2.ErrCodeNo, nil) != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// A repeated stream would wait for a connection with the stream's lock held, and every
// method of the stream with it.
func TestAStreamIsNotRepeatedOnAnotherConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams := refuseStreams(t, l)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStreamInterceptor(new(identity).stream))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := dtaskv1.NewJobServiceClient(conn).Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if n := streams(); n != 1 {
		t.Errorf("the stream was opened %d times, want once", n)
	}
}

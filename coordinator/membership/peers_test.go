package membership

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// identified is a replica that only identifies itself.
type identified struct {
	dtaskv1.UnimplementedClusterServiceServer
}

func (identified) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n1"}, nil
}

// A replica that starts late is noticed long before its own election timeout elapses:
// otherwise the others, which have waited for its log, elect a leader without it.
func TestAReplicaThatStartsLateIsNoticedAtOnce(t *testing.T) {
	for _, late := range []time.Duration{300 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := bufconn.Listen(1 << 16)
				server := grpc.NewServer()
				dtaskv1.RegisterClusterServiceServer(server, identified{})
				started := make(chan struct{})
				served := make(chan struct{})
				time.AfterFunc(late, func() {
					close(started)
					defer close(served)
					_ = server.Serve(listener) // ends with Stop
				})
				p := NewPeers(func(ctx context.Context, _ string) (net.Conn, error) {
					select {
					case <-started:
						return listener.DialContext(ctx)
					default:
						return nil, errors.New("connection refused")
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				for {
					if _, err := p.Identify(ctx, "n1:7000"); err == nil {
						break
					}
					<-time.After(10 * time.Millisecond)
				}
				if after := time.Since(began) - late; after > 200*time.Millisecond {
					t.Errorf("noticed after %v", after)
				}
				p.Close()
				server.Stop()
				<-served
			})
		})
	}
}

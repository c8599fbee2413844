package coordinator

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// silentConn is a connection whose other end vanishes when gone is set: nothing arrives
// from then on, and written bytes are lost.
type silentConn struct {
	net.Conn

	gone *atomic.Bool
}

func (c silentConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.gone.Load() {
			return n, err
		}
	}
}

func (c silentConn) Write(b []byte) (int, error) {
	if c.gone.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// endless sends one chunk of history, and then nothing.
type endless struct {
	dtaskv1.UnimplementedAdminServiceServer
}

func (endless) History(_ *dtaskv1.HistoryRequest, stream grpc.ServerStreamingServer[dtaskv1.HistoryResponse]) error {
	if err := stream.Send(&dtaskv1.HistoryResponse{Chunks: []*dtaskv1.HistoryChunk{{Index: 1, Job: 1}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// A replica that fetches history from one that vanished must try another one, which may
// have the only remaining copy.
func TestFetchingHistoryFromAVanishedReplicaEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		server := grpc.NewServer()
		dtaskv1.RegisterAdminServiceServer(server, endless{})
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		var gone atomic.Bool
		peers := membership.NewPeers(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := l.DialContext(ctx)
			return silentConn{conn, &gone}, err
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		started := time.Now()
		_, err := historySource{peers, "vanished"}.Fetch(ctx, history.Position{}, 10, func(history.Chunk, bool) error {
			gone.Store(true)
			return nil
		})
		if took := time.Since(started); err == nil || took > time.Minute {
			t.Errorf("fetching ended after %v with %v", took, err)
		}
		if err := peers.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

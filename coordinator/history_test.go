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

// silenced is a connection on which nothing comes any more once it is told so, and what
// is written is lost: the other end is gone without a word.
type silenced struct {
	net.Conn

	gone *atomic.Bool
}

func (c silenced) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.gone.Load() {
			return n, err
		}
	}
}

func (c silenced) Write(b []byte) (int, error) {
	if c.gone.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// endless sends one piece of history, and then nothing.
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

// A replica that fetches what it lacks from one that is gone without a word must turn
// to another one: it may be the only copy that is left.
func TestHistoryIsNotFetchedForEverFromWhoIsGone(t *testing.T) {
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
			return silenced{conn, &gone}, err
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := historySource{peers, "silent"}.Fetch(ctx, history.Position{}, 10, func(history.Chunk, bool) error {
			gone.Store(true)
			return nil
		})
		if took := time.Since(began); err == nil || took > time.Minute {
			t.Errorf("it ended after %v with %v", took, err)
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

package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/fsm"
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

func TestTheStatusShowsHowFarTheImportOfABackupIs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), historyName)
	w, err := history.CreateImport(path, 9)
	if err != nil {
		t.Fatal(err)
	}
	for job := range fsm.JobID(3) {
		if err := w.Add(history.Chunk{Position: history.Position{Index: 5, Job: job + 1}, Data: []byte("job")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// Without the gap, the second file has no use for the jobs.
	for i, want := range []*dtaskv1.HistoryImport{{Jobs: 3, Left: 3}, nil} {
		if err := errors.Join(ignoreMissing(os.Remove(path)), history.Create(path, 12, []uint64{9, 0}[i])); err != nil {
			t.Fatal(err)
		}
		h, err := history.Open(history.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := (&replica{history: h}).historyImport(); !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

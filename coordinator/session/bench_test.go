package session_test

import (
	"context"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ackingLeader acknowledges each report immediately.
type ackingLeader struct{ session.Leader }

func (ackingLeader) Term() uint64                           { return 1 }
func (ackingLeader) Detach(fsm.WorkerID, sequencer.Session) {}
func (ackingLeader) AllowReconnectsUntil(time.Time)         {}
func (ackingLeader) Ready() <-chan struct{}                 { return closed }
func (l ackingLeader) Attach(context.Context, sequencer.Hello, sequencer.Session) (sequencer.Welcome, error) {
	return sequencer.Welcome{Worker: 1}, nil
}

func (ackingLeader) TryReport(_ fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, _ bool) (bool, error) {
	s.Send(sequencer.WorkerMessage{AckThrough: r.GetOutcomes().GetFirst()})
	s.Flush()
	return true, nil
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLoneWorker is the cost of a report and its acknowledgment, at both
// ends of TCP on loopback, for a worker that is alone on its stream.
func BenchmarkLoneWorker(b *testing.B) {
	b.Run("one in flight", func(b *testing.B) { loneWorker(b, 1) })
	b.Run("ten in flight", func(b *testing.B) { loneWorker(b, 10) })
}

func loneWorker(b *testing.B, window int) {
	b.Helper()
	s := session.New(session.Config{
		Current: func() session.Leader { return ackingLeader{} }, Machine: fsm.NewMachine(), Logger: slog.New(slog.DiscardHandler),
	})
	var lc net.ListenConfig
	listener, err := lc.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	dtaskv1.RegisterWorkerServiceServer(server, s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer func() {
		cancel()
		_ = conn.Close()
		server.Stop()
		<-served
	}()
	stream, err := dtaskv1.NewWorkerServiceClient(conn).Sessions(ctx)
	if err != nil {
		b.Fatal(err)
	}
	send := func(m *dtaskv1.SessionRequest) {
		if err := stream.Send(&dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: 1, Message: m}}}); err != nil {
			b.Fatal(err)
		}
	}
	receive := func() *dtaskv1.SessionResponse {
		m, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		return m.GetFrames()[0].GetMessage()
	}
	send(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
	receive()
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	for sent, acked := 0, 0; acked < b.N; {
		for ; sent < b.N && sent-acked < window; sent++ {
			m := columns.NewOutcomes(uint64(sent+1), 1)
			columns.AddOutcome(m, &columns.Outcome{Job: 1, Task: uint32(sent), Attempt: 1})
			send(&dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Outcomes: m}})
		}
		acked = max(acked, int(receive().GetAck().GetThrough()))
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

package worker

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNoop is the worker's cost of a task that does nothing, including the
// leader's end and the connection: with one task a message, and with 500 as
// under load.
func BenchmarkNoop(b *testing.B) {
	for _, batch := range []int{1, 500} {
		b.Run(fmt.Sprintf("%d a message", batch), func(b *testing.B) { runNoops(b, batch) })
	}
}

func runNoops(b *testing.B, batch int) {
	b.Helper()
	n := &network{nodes: map[string]*node{}}
	r := n.listen("n1:1", nil)
	w, err := New(Config{Join: []string{"n1:1"}, Name: "bench", Slots: 16, WorkDir: b.TempDir(), DrainTimeout: -1}, WithDialer(n.dial))
	if err != nil {
		b.Fatal(err)
	}
	w.Handle("noop", func(context.Context, *Task) ([]byte, error) { return nil, nil })
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	l := <-r.sessions
	fence := &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: 1}
	send := func(m *dtaskv1.SessionResponse) {
		m.Fence = fence
		if err := l.stream.Send(m); err != nil {
			b.Error(err)
		}
	}
	send(&dtaskv1.SessionResponse{Heartbeat: 1, Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 1000}})
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	sent, acked, messages := 0, 0, 0
	for acked < b.N {
		for sent-acked < 4*batch && sent < b.N {
			m := columns.NewAssignments(batch)
			m.Contexts = []*dtaskv1.JobContext{{Job: 1, Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 3_600_000}}}}
			for range min(batch, b.N-sent) {
				columns.AddAssignment(m, &columns.Assignment{Task: uint32(sent), Attempt: 1, ID: "t"})
				sent++
			}
			send(&dtaskv1.SessionResponse{Assignments: m})
		}
		m := <-l.in
		messages++
		if got := len(m.GetReports().GetOutcomes().GetTasks()); got > 0 {
			acked += got
			send(&dtaskv1.SessionResponse{Heartbeat: m.GetHeartbeat(), Ack: &dtaskv1.Ack{Through: uint64(acked)}})
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(messages), "outcomes/message")
	cancel()
	n.stopAll()
	<-done
}

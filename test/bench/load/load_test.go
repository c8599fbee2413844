package load

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeLeader assigns some tasks to every worker, and acknowledges outcomes.
type fakeLeader struct {
	dtaskv1.UnimplementedWorkerServiceServer
	tasks int

	mu    sync.Mutex // guards ended
	ended map[string]int
}

var fenceOfFake = &dtaskv1.Fence{Epoch: 1, Term: 3}

func (f *fakeLeader) welcome() (*dtaskv1.SessionResponse, error) {
	m := &dtaskv1.SessionResponse{Fence: fenceOfFake, Welcome: &dtaskv1.Welcome{WorkerId: 1}, Assignments: &dtaskv1.Assignments{
		Contexts: []*dtaskv1.JobContext{{Job: 7, Policies: []*dtaskv1.TaskPolicy{{}}}},
	}}
	for i := range f.tasks {
		body, err := proto.Marshal(&dtaskv1.TaskBody{Payload: Stamp(time.Now(), 0)})
		if err != nil {
			return nil, err
		}
		columns.AddAssignment(m.GetAssignments(), &columns.Assignment{Task: uint32(i), Attempt: 1, Body: body})
	}
	return m, nil
}

// answer returns the response to a message of a worker.
func (f *fakeLeader) answer(name string, got *dtaskv1.SessionRequest) *dtaskv1.SessionResponse {
	m := &dtaskv1.SessionResponse{Fence: fenceOfFake, Heartbeat: got.GetHeartbeat()}
	if n := len(got.GetReports().GetOutcomes().GetTasks()); n > 0 {
		m.Ack = &dtaskv1.Ack{Through: got.GetReports().GetOutcomes().GetFirst() + uint64(n) - 1}
		f.mu.Lock()
		f.ended[name] += n
		f.mu.Unlock()
	}
	return m
}

func (f *fakeLeader) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	names := make(map[uint32]string)
	for {
		got, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		m := &dtaskv1.SessionsResponse{}
		for _, frame := range got.GetFrames() {
			n, said := frame.GetSession(), frame.GetMessage()
			if said == nil {
				continue
			}
			answer := f.answer(names[n], said)
			if names[n] == "" {
				names[n] = said.GetHello().GetName()
				if answer, err = f.welcome(); err != nil {
					return err
				}
			}
			m.Frames = append(m.Frames, &dtaskv1.ResponseFrame{Session: n, Message: answer})
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

func TestEveryWorkerExecutesItsTasks(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"one stream per worker": true, "one stream per connection": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			executesAll(t, own)
		})
	}
}

func executesAll(t *testing.T, own bool) {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const workers, tasks = 20, 10
	leader := &fakeLeader{tasks: tasks, ended: make(map[string]int)}
	server := grpc.NewServer()
	dtaskv1.RegisterWorkerServiceServer(server, leader)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	defer running.Wait()
	defer server.Stop()

	l, err := New(Config{
		Addrs: []string{listener.Addr().String()}, Workers: workers, Slots: 2, Connections: 3, Own: own, HeartbeatInterval: 50 * time.Millisecond,
		Takes: Skewed(0, 5*time.Millisecond, 2), Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	running.Go(func() { l.Run(ctx) })
	defer stop()
	if err := l.Await(ctx, workers); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.Stats().Completed < workers*tasks {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("got incomplete stats %+v", l.Stats())
		}
	}
	for name, n := range leader.ended {
		if n != tasks {
			t.Errorf("%s: got %d ended tasks, want %d", name, n, tasks)
		}
	}
	if s := l.Stats(); s.Started != workers*tasks || s.Lost > 0 || l.Latency().Count() != workers*tasks {
		t.Errorf("got %+v and %d latencies", s, l.Latency().Count())
	}
}

func TestQuantilesAreAccurate(t *testing.T) {
	t.Parallel()
	var l Latency
	for i := 1; i <= 1000; i++ {
		l.Add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := l.Quantile(q); got < want || got > want+want/14 {
			t.Errorf("quantile %v: got %v, want slightly above %v", q, got, want)
		}
	}
}

func TestDurationsAreParsed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for text, mean := range map[string]time.Duration{
		"0s": 0, "10ms": 10 * time.Millisecond, "exp:10ms": 10 * time.Millisecond, "skew:10ms:1s:10": 109 * time.Millisecond,
	} {
		draw, err := ParseDurations(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var sum time.Duration
		for range 20_000 {
			sum += draw(r)
		}
		if got := sum / 20_000; got < mean-mean/10 || got > mean+mean/10 {
			t.Errorf("%s: got mean %v, want about %v", text, got, mean)
		}
	}
	for _, text := range []string{"", "x", "-1s", "exp:", "skew:1s:2s", "skew:1s:2s:0", "other:1s"} {
		if _, err := ParseDurations(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

package worker_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker"
)

// task is a task of an example.
type task struct {
	Type       string
	Payload    string
	Output     string
	Attempt    uint32
	TimeoutMS  int64
	Checkpoint string
	Items      []string
}

// coordinator is a coordinator in memory for the examples. It assigns its tasks
// to the first worker, and collects the outcomes. The worker may lose its session
// and open another.
type coordinator struct {
	dtaskv1.UnimplementedWorkerServiceServer

	listener *bufconn.Listener
	server   *grpc.Server
	served   sync.WaitGroup

	mu       sync.Mutex // guards the rest
	assigned *dtaskv1.Assignments
	worker   string // name of the worker that the tasks are assigned to
	left     int
	ended    map[uint32]bool // by number of task
	done     chan struct{}   // closed when all tasks have ended
	outcomes []string
}

func startCoordinator(tasks ...task) *coordinator {
	shared := &dtaskv1.JobContext{Job: 42, JobName: "example"}
	c := &coordinator{
		listener: bufconn.Listen(1 << 20), server: grpc.NewServer(), left: len(tasks), done: make(chan struct{}),
		ended: map[uint32]bool{}, assigned: &dtaskv1.Assignments{Contexts: []*dtaskv1.JobContext{shared}},
	}
	for i, t := range tasks {
		shared.Policies = append(shared.Policies, &dtaskv1.TaskPolicy{Type: t.Type, TimeoutMs: t.TimeoutMS})
		body, _ := proto.Marshal(&dtaskv1.TaskBody{Payload: []byte(t.Payload), Output: t.Output})
		row := &columns.Assignment{Policy: uint32(i), Task: uint32(i), Attempt: max(t.Attempt, 1), ID: fmt.Sprintf("t%d", i), Body: body}
		if t.Checkpoint != "" || t.Items != nil {
			row.Extras = &dtaskv1.AssignmentExtras{}
		}
		if t.Checkpoint != "" {
			row.Extras.Checkpoint = &dtaskv1.Checkpoint{Format: dtaskv1.CheckpointFormat_CHECKPOINT_FORMAT_DATA, Data: []byte(t.Checkpoint)}
		}
		if t.Items != nil {
			row.Extras.Array = &dtaskv1.ArrayItems{Size: uint32(len(t.Items)), Chunked: true}
			for j, item := range t.Items {
				row.Extras.Array.Indexes = append(row.Extras.Array.Indexes, uint32(j))
				row.Extras.Array.Items = append(row.Extras.Array.Items, []byte(item))
			}
		}
		columns.AddAssignment(c.assigned, row)
	}
	dtaskv1.RegisterWorkerServiceServer(c.server, c)
	c.served.Go(func() { _ = c.server.Serve(c.listener) })
	return c
}

// Dial connects a worker to the coordinator.
func (c *coordinator) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return c.listener.DialContext(ctx)
}

// Finish runs a worker until all tasks have ended, and prints their outcomes.
func (c *coordinator) Finish(workers ...*worker.Worker) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, w := range workers {
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	<-c.done
	stop()
	running.Wait()
	c.server.Stop()
	c.served.Wait()
	slices.Sort(c.outcomes)
	fmt.Print(strings.Join(c.outcomes, ""))
}

// Sessions implements dtaskv1.WorkerServiceServer.
func (c *coordinator) Sessions(stream dtaskv1.WorkerService_SessionsServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		response := &dtaskv1.SessionsResponse{}
		for _, f := range request.GetFrames() {
			if f.GetMessage() != nil {
				response.Frames = append(response.Frames, &dtaskv1.ResponseFrame{Session: f.GetSession(), Message: c.answer(f.GetMessage())})
			}
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func (c *coordinator) answer(m *dtaskv1.SessionRequest) *dtaskv1.SessionResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &dtaskv1.SessionResponse{Fence: &dtaskv1.Fence{ClusterId: "c1", Epoch: 1, Term: 1}, Heartbeat: m.GetHeartbeat()}
	if hello := m.GetHello(); hello != nil {
		answer.Welcome = &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 1000}
		lost := hello.GetName() == c.worker && c.left > 0 && len(hello.GetHeld())+len(hello.GetEnded()) == 0
		if c.worker == "" || lost {
			answer.Assignments, c.worker = c.assigned, hello.GetName()
		}
	}
	for _, checkpoint := range m.GetReports().GetCheckpoints() {
		answer.CheckpointResults = append(answer.CheckpointResults, &dtaskv1.CheckpointResult{Attempt: checkpoint.GetAttempt(), Number: checkpoint.GetNumber()})
	}
	rows, _ := columns.ReadOutcomes(m.GetReports().GetOutcomes())
	for rows.Left() > 0 {
		o := rows.Next()
		answer.Ack = &dtaskv1.Ack{Through: o.Number}
		if c.ended[o.Task] {
			continue // repeated: its acknowledgment was lost with a session
		}
		c.ended[o.Task] = true
		c.outcomes = append(c.outcomes, describe(o))
		if c.left--; c.left == 0 {
			close(c.done)
		}
	}
	return answer
}

func describe(o columns.Outcome) string {
	d := o.Detail
	if d == nil {
		d = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: o.Result}
	}
	text := fmt.Sprintf("task %d: %s", o.Task, strings.ToLower(strings.TrimPrefix(d.GetKind().String(), "OUTCOME_KIND_")))
	for name, set := range map[string]bool{"fatal": d.GetFatal(), "always retried": d.GetTemporary()} {
		if set {
			text += " (" + name + ")"
		}
	}
	if class := d.GetErrorName(); class != "" {
		text += " [" + class + "]"
	}
	if d.GetExitCode() != 0 {
		text += fmt.Sprintf(" [exit code %d]", d.GetExitCode())
	}
	return strings.TrimSpace(text+": "+d.GetError()+string(d.GetResult())) + "\n"
}

// tempDir returns a work directory for an example, and removes it afterwards.
func tempDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

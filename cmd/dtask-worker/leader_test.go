package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/internal/program"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// leader is the least coordinator: it gives its tasks to the first worker,
// acknowledges every outcome, and hands them to the test.
type leader struct {
	dtaskv1.UnimplementedWorkerServiceServer
	tasks    *dtaskv1.Assignments
	hello    chan *dtaskv1.Hello
	outcomes chan *dtaskv1.Outcome
}

func (l *leader) Session(stream grpc.BidiStreamingServer[dtaskv1.SessionRequest, dtaskv1.SessionResponse]) error {
	fence := &dtaskv1.Fence{ClusterId: strings.Repeat("ab", 16), Epoch: 1, Term: 1}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the worker has gone
		}
		answer := &dtaskv1.SessionResponse{Fence: fence, Beat: m.GetBeat()}
		if m.GetHello() != nil {
			l.hello <- m.GetHello()
			answer.Welcome = &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 1000, SilenceMs: 3000, LeaseMs: 30_000}
			answer.Assignments = l.tasks
		}
		if got := m.GetReports().GetOutcomes(); len(got) > 0 {
			answer.Ack = &dtaskv1.Ack{Through: m.GetReports().GetFirst() + uint64(len(got)) - 1}
			for _, o := range got {
				l.outcomes <- o
			}
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// lead serves a leader that gives out these shell commands.
func lead(t *testing.T, commands ...string) (l *leader, addr string) {
	t.Helper()
	l = &leader{hello: make(chan *dtaskv1.Hello, 1), outcomes: make(chan *dtaskv1.Outcome, 10), tasks: &dtaskv1.Assignments{
		Contexts: []*dtaskv1.JobContext{{Job: 1, JobName: "j", Policies: []*dtaskv1.TaskPolicy{{TimeoutMs: 60_000, KillGraceMs: 100}}}},
	}}
	for i, run := range commands {
		l.tasks.Tasks = append(l.tasks.Tasks, &dtaskv1.Assignment{Task: uint32(i), Attempt: 1, TaskId: "t" + strconv.Itoa(i), Body: &dtaskv1.TaskBody{Run: run}})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	dtaskv1.RegisterWorkerServiceServer(server, l)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return l, listener.Addr().String()
}

func TestTheProgramRunsCommandsAndDrains(t *testing.T) {
	t.Parallel()
	l, addr := lead(t, "echo hello from $DTASK_WORKER", "sleep 600")
	cmd, _ := startProgram(t, "--join", addr, "--name", "real", "--work-dir", t.TempDir(), "--slots", "2",
		"--label", "zone=eu", "--resource", "gpu=2", "--drain-timeout", "100ms")
	hello := <-l.hello
	if hello.GetName() != "real" || hello.GetSlots() != 2 || hello.GetLabels()["zone"] != "eu" || hello.GetResources()["gpu"] != 2000 || hello.GetResources()["memory"] == 0 {
		t.Errorf("hello = %v", hello)
	}
	if o := <-l.outcomes; o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED || string(o.GetResult()) != "hello from real" {
		t.Errorf("outcome = %v", o)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if o := <-l.outcomes; o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
		t.Errorf("outcome of what would not end = %v, want released", o)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestASecondSignalEndsTheProgramAndItsCommandsAtOnce(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	_, addr := lead(t, "trap '' TERM; echo $$ > "+pid+".x; mv "+pid+".x "+pid+"; sleep 600; sleep 600")
	cmd, log := startProgram(t, "--join", addr, "--name", "hasty", "--work-dir", t.TempDir())
	until(t, func() bool { _, err := os.Stat(pid); return err == nil })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, log, "draining") // two that come at once are one to the kernel
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != program.ExitAtOnce {
		t.Errorf("exit %d, want %d", code, program.ExitAtOnce)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	command, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return errors.Is(syscall.Kill(command, 0), syscall.ESRCH) })
}

// until waits for something that a process does.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it never happened")
		}
	}
}

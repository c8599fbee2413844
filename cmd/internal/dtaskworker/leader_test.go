package dtaskworker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/program"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// leader is a minimal coordinator: it assigns its tasks to the first worker,
// acknowledges every outcome, and passes outcomes to the test.
type leader struct {
	dtaskv1.UnimplementedWorkerServiceServer
	tasks    *dtaskv1.Assignments
	hello    chan *dtaskv1.Hello
	outcomes chan *dtaskv1.Outcome
}

// Sessions serves the one session of the program's worker.
func (l *leader) Sessions(stream grpc.BidiStreamingServer[dtaskv1.SessionsRequest, dtaskv1.SessionsResponse]) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the worker has left
		}
		for _, frame := range request.GetFrames() {
			if frame.GetEnd() {
				continue
			}
			answer, err := l.answer(frame.GetMessage())
			if err != nil {
				return err
			}
			frames := []*dtaskv1.ResponseFrame{{Session: frame.GetSession(), Message: answer}}
			if err := stream.Send(&dtaskv1.SessionsResponse{Frames: frames}); err != nil {
				return err
			}
		}
	}
}

// answer welcomes the worker with all tasks, and acknowledges its outcomes.
func (l *leader) answer(m *dtaskv1.SessionRequest) (*dtaskv1.SessionResponse, error) {
	fence := &dtaskv1.Fence{ClusterId: strings.Repeat("ab", 16), Epoch: 1, Term: 1}
	answer := &dtaskv1.SessionResponse{Fence: fence, Heartbeat: m.GetHeartbeat()}
	if m.GetHello() != nil {
		l.hello <- m.GetHello()
		// Both are patient: this machine may stall.
		answer.Welcome = &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 60_000, LivenessTimeoutMs: 180_000, LeaseMs: 300_000}
		answer.Assignments = l.tasks
	}
	rows, err := columns.ReadOutcomes(m.GetReports().GetOutcomes())
	if err != nil {
		return nil, err
	}
	for rows.Left() > 0 {
		row := rows.Next()
		answer.Ack = &dtaskv1.Ack{Through: row.Number}
		if row.Detail == nil {
			row.Detail = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: row.Result}
		}
		l.outcomes <- row.Detail
	}
	return answer, nil
}

// lead serves a leader that assigns these shell commands.
func lead(t *testing.T, commands ...string) (l *leader, addr string) {
	t.Helper()
	return leadWith(t, 100, commands...)
}

// leadWith is lead with a kill grace in milliseconds.
func leadWith(t *testing.T, graceMS int64, commands ...string) (l *leader, addr string) {
	t.Helper()
	l = &leader{hello: make(chan *dtaskv1.Hello, 10), outcomes: make(chan *dtaskv1.Outcome, 10), tasks: &dtaskv1.Assignments{
		Contexts: []*dtaskv1.JobContext{{Job: 1, JobName: "j", Policies: []*dtaskv1.TaskPolicy{{TimeoutMs: 60_000, KillGraceMs: graceMS}}}},
	}}
	for i, run := range commands {
		body, err := proto.Marshal(&dtaskv1.TaskBody{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		columns.AddAssignment(l.tasks, &columns.Assignment{Task: uint32(i), Attempt: 1, ID: "t" + strconv.Itoa(i), Body: body})
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

func TestAReservedWorkerAnnouncesIt(t *testing.T) {
	t.Parallel()
	for _, reserved := range []bool{false, true} {
		l, addr := lead(t)
		args := []string{"--join", addr, "--name", "w", "--work-dir", t.TempDir(), "--label", "pool=ml"}
		if reserved {
			args = append(args, "--reserved")
		}
		cmd, _ := startProgram(t, args...)
		if got := (<-l.hello).GetReserved(); got != reserved {
			t.Errorf("with %v, the worker announces %v", args, got)
		}
		signal(t, cmd)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v", err)
		}
	}
}

// Built-in types would run as root, so the worker doesn't offer them.
func TestAWorkerWithAnotherUserForCommandsGetsOnlyCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // the user must reach it
		t.Fatal(err)
	}
	args := []string{"--name", "other", "--work-dir", dir, "--run-as", "54321:54322", "--drain-timeout", "100ms", "--join"}
	if os.Geteuid() != 0 {
		var stderr bytes.Buffer
		if code := run(append(args, "127.0.0.1:1"), io.Discard, &stderr); code != program.ExitFailed || !strings.Contains(stderr.String(), "start the worker as root") {
			t.Errorf("exit %d, %q", code, stderr.String())
		}
		return
	}
	l, addr := lead(t, "id -u")
	cmd, _ := startProgram(t, append(args, addr)...)
	if types := (<-l.hello).GetTypes(); !slices.Equal(types, []string{"command"}) {
		t.Errorf("it handles %v", types)
	}
	if o := <-l.outcomes; string(o.GetResult()) != "54321" {
		t.Errorf("outcome = %v", o)
	}
	signal(t, cmd)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// stubborn is a command that ignores SIGTERM and says which process it is.
func stubborn(pid string) string {
	return "trap '' TERM; echo $$ > " + pid + ".x; mv " + pid + ".x " + pid + "; sleep 600; sleep 600"
}

// signal sends SIGTERM. Who sends another waits for the log in between: two that
// come at once are one to the kernel.
func signal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// awaitDeath waits until the process whose number is in a file is gone.
func awaitDeath(t *testing.T, pid string) {
	t.Helper()
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

func TestASecondSignalHandsBackWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	l, addr := lead(t, stubborn(pid))
	cmd, log := startProgram(t, "--join", addr, "--name", "hasty", "--work-dir", t.TempDir(), "--drain-timeout", "1h")
	until(t, func() bool { _, err := os.Stat(pid); return err == nil })
	signal(t, cmd)
	awaitLine(t, log, "draining")
	signal(t, cmd)
	if o := <-l.outcomes; o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
		t.Errorf("outcome of what would not end = %v, want released", o)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	awaitDeath(t, pid)
}

func TestAThirdSignalEndsTheProgramAndItsCommandsAtOnce(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	_, addr := leadWith(t, 3_600_000, stubborn(pid))
	cmd, log := startProgram(t, "--join", addr, "--name", "hastier", "--work-dir", t.TempDir(), "--drain-timeout", "1h")
	until(t, func() bool { _, err := os.Stat(pid); return err == nil })
	signal(t, cmd)
	awaitLine(t, log, "draining")
	signal(t, cmd)
	awaitLine(t, log, "stopping running attempts")
	signal(t, cmd)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != program.ExitAtOnce {
		t.Errorf("exit %d, want %d", code, program.ExitAtOnce)
	}
	awaitDeath(t, pid)
}

// until waits for something that a process does.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it never happened")
		}
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func TestSubmittedJobIsStoredAsSent(t *testing.T) {
	t.Parallel()
	r := setup(t)
	tasks := diamond()
	tasks[3].Body = &dtaskv1.TaskBody{Payload: []byte("p"), Output: "/out"}
	resp, err := r.send(t.Context(), request("k", header("x"), tasks...))
	if err != nil || resp.GetExisted() || resp.GetIndex() != r.machine.Index() {
		t.Fatalf("got %v, %v", resp, err)
	}
	fork, _ := r.machine.Fork()
	for i, want := range tasks {
		ref := fsm.TaskRef{Job: 1, Index: uint32(i)}
		body := new(dtaskv1.TaskBody)
		if err := proto.Unmarshal(fork.Body(ref), body); err != nil {
			t.Fatal(err)
		}
		got := &dtaskv1.TaskSpec{Id: fork.Name(ref), Dependencies: fork.Dependencies(ref), Body: body}
		if len(got.GetDependencies()) == 0 {
			got.Dependencies = nil
		}
		if !proto.Equal(got, want) {
			t.Errorf("task %d: got %v, want %v", i, got, want)
		}
	}
}

func TestRepeatedKeyReturnsTheSameJobOrAConflict(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, err := r.send(t.Context(), request("k", header("x"), diamond()...))
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.send(t.Context(), request("k", header("x"), diamond()...))
	if err != nil || !again.GetExisted() || again.GetId() != first.GetId() {
		t.Errorf("repeat: got %v, %v; want job %s", again, err, first.GetId())
	}
	_, err = r.send(t.Context(), request("k", header("y"), diamond()...))
	wantError(t, err, codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
}

// encode encodes the parts of a job.
func encode(t *testing.T, messages ...*dtaskv1.JobPart) sequencer.Submission {
	t.Helper()
	var e jobEncoder
	if err := errors.Join(e.begin(messages[0]), e.header(messages[0].GetHeader())); err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		for _, task := range m.GetTasks() {
			if err := e.add(task); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e.finish()
}

func TestDigestDoesNotDependOnTheSplitIntoParts(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	var tasks []*dtaskv1.TaskSpec
	for i := range 200 {
		tasks = append(tasks, task(fmt.Sprint("t", i)))
		tasks[i].Body.Payload = []byte(strings.Repeat("p", 10*i))
	}
	var first sequencer.Submission
	for _, cut := range []int{1, 7, 100, 200} {
		messages := []*dtaskv1.JobPart{{Header: proto.CloneOf(h), IdempotencyKey: "k", Total: 200}}
		for from := 0; from < len(tasks); from += cut {
			messages = append(messages, &dtaskv1.JobPart{Tasks: tasks[from:min(from+cut, len(tasks))]})
		}
		if _, err := r.send(t.Context(), messages...); err != nil {
			t.Fatalf("in parts of %d: got %v", cut, err)
		}
		got := r.leader.last
		if cut == 1 {
			first = got
		}
		if got.Digest != first.Digest || got.Sum != first.Sum {
			t.Errorf("in parts of %d: got digest %x and sum %x, want %x and %x", cut, got.Digest, got.Sum, first.Digest, first.Sum)
		}
	}
	if fork, _ := r.machine.Fork(); fork.JobCount() != 1 {
		t.Errorf("got %d jobs, want 1", fork.JobCount())
	}
}

func TestTheDigestDependsOnEveryPartOfAJob(t *testing.T) {
	t.Parallel()
	base := encode(t, request("k", header("x"), diamond()...))
	for name, change := range map[string]func(*dtaskv1.JobPart){
		"header":     func(m *dtaskv1.JobPart) { m.Header.Owner = "o" },
		"name":       func(m *dtaskv1.JobPart) { m.Tasks[0].Id = "z" },
		"policy":     func(m *dtaskv1.JobPart) { m.Tasks[0].Policy = 1 },
		"dependency": func(m *dtaskv1.JobPart) { m.Tasks[3].Dependencies = []uint32{0, 2} },
		"body":       func(m *dtaskv1.JobPart) { m.Tasks[0].Body.Output = "/x" },
		"fewer":      func(m *dtaskv1.JobPart) { m.Tasks = m.GetTasks()[:3] },
	} {
		m := request("k", header("x"), diamond()...)
		change(m)
		if got := encode(t, m); got.Digest == base.Digest {
			t.Errorf("another %s: got the same digest", name)
		}
	}
}

func TestDefaultsOfTheCoordinatorAreStoredAndNotInTheDigest(t *testing.T) {
	t.Parallel()
	var digests [2][16]byte
	for i, timeout := range []time.Duration{time.Minute, time.Hour} {
		r := setup(t, func(c *Config) { c.TaskDefaults = spec.TaskDefaults{Timeout: timeout} })
		h := header("x")
		h.Policies[0].TimeoutMs = 0
		if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
			t.Fatal(err)
		}
		digests[i] = r.leader.last.Digest
		fork, _ := r.machine.Fork()
		if got := fork.Policy(fsm.TaskRef{Job: 1}).GetTimeoutMs(); got != timeout.Milliseconds() {
			t.Errorf("got stored timeout %d ms, want %s", got, timeout)
		}
	}
	if digests[0] != digests[1] {
		t.Error("got different digests of one job at coordinators with different defaults")
	}
}

func TestChunksAreBounded(t *testing.T) {
	t.Parallel()
	var tasks []*dtaskv1.TaskSpec
	for i := range 20 {
		tasks = append(tasks, task(fmt.Sprint("t", i)))
		tasks[i].Body.Payload = make([]byte, 10_000*(i%12))
	}
	s := encode(t, request("k", header("x"), tasks...))
	n, sum := uint32(0), uint32(0)
	for _, c := range s.Chunks {
		if c.First != n {
			t.Errorf("got a chunk that starts at %d, want %d", c.First, n)
		}
		if c.Size() > maxChunk && c.Len() > 1 {
			t.Errorf("got a chunk of %d tasks with %d bytes", c.Len(), c.Size())
		}
		n += uint32(c.Len())
		sum = c.Sum(sum)
	}
	if n != 20 || sum != s.Sum || len(s.Chunks) < 10 {
		t.Errorf("got %d tasks in %d chunks, sum %x; want 20 and %x", n, len(s.Chunks), sum, s.Sum)
	}
}

func TestJobBeyondALimitIsInvalid(t *testing.T) {
	t.Parallel()
	big := func(n int) []*dtaskv1.TaskSpec {
		a := task("a")
		a.Body.Payload = make([]byte, n)
		return []*dtaskv1.TaskSpec{a}
	}
	with := func(f func(m *dtaskv1.JobPart)) []*dtaskv1.JobPart {
		m := request("k", header("x"), task("a"))
		f(m)
		return []*dtaskv1.JobPart{m}
	}
	second := func(m *dtaskv1.JobPart) []*dtaskv1.JobPart {
		first := request("k", header("x"), task("a"))
		first.Total = 2
		m.Tasks = []*dtaskv1.TaskSpec{task("b")}
		return []*dtaskv1.JobPart{first, m}
	}
	for _, c := range []struct {
		name     string
		messages []*dtaskv1.JobPart
		fault    string
	}{
		{"no header", with(func(m *dtaskv1.JobPart) { m.Header = nil }), "header: missing"},
		{"no key", with(func(m *dtaskv1.JobPart) { m.IdempotencyKey = "" }), "has 0 bytes"},
		{"long key", with(func(m *dtaskv1.JobPart) { m.IdempotencyKey = strings.Repeat("k", 129) }), "has 129 bytes"},
		{"no total", with(func(m *dtaskv1.JobPart) { m.Total = 0 }), "total: invalid number of tasks 0"},
		{"large total", with(func(m *dtaskv1.JobPart) { m.Total = 1_000_001 }), "total: invalid number of tasks 1000001"},
		{"more than announced", with(func(m *dtaskv1.JobPart) { m.Tasks = diamond() }), "total: 1 tasks were announced"},
		{"fewer than announced", with(func(m *dtaskv1.JobPart) { m.Total = 2 }), "announced"},
		{"header again", second(&dtaskv1.JobPart{Header: header("x")}), "first part only"},
		{"key again", second(&dtaskv1.JobPart{IdempotencyKey: "k"}), "first part only"},
		{"total again", second(&dtaskv1.JobPart{Total: 2}), "first part only"},
		{"bad header", with(func(m *dtaskv1.JobPart) { m.Header.Name = "" }), "job.name"},
		{"no policy", with(func(m *dtaskv1.JobPart) { m.Header.Policies = nil }), "job.policies"},
		{"unknown policy", with(func(m *dtaskv1.JobPart) { m.Tasks[0].Policy = 3 }), "policy"},
		{"duplicate id", []*dtaskv1.JobPart{request("k", header("x"), task("a"), task("a"))}, "duplicate id"},
		{"self-dependency", []*dtaskv1.JobPart{request("k", header("x"), task("a", 0))}, "task \"a\""},
		{"large payload", []*dtaskv1.JobPart{request("k", header("x"), big(spec.DefaultPayload+1)...)}, "payload"},
		{"large message", []*dtaskv1.JobPart{request("k", header("x"), big(maxMessage)...)}, "message: has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			_, err := r.send(t.Context(), c.messages...)
			d := wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
			if got := strings.Join(d.GetFaults(), "\n"); !strings.Contains(got, c.fault) {
				t.Errorf("got faults %q, want %q among them", got, c.fault)
			}
			if r.leader.submits != 0 || !r.uploads.TryAcquire(r.cfg.UploadBytes) {
				t.Error("the job was submitted, or its memory is still held")
			}
		})
	}
}

func TestLargestKeyAndPayloadAreAccepted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	a := task("a")
	a.Body.Payload = make([]byte, spec.DefaultPayload)
	if _, err := r.send(t.Context(), request(strings.Repeat("k", 128), header("x"), a)); err != nil {
		t.Error(err)
	}
}

func TestMessageAboveTheServersLimitIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	a := task("a")
	a.Body.Payload = make([]byte, maxReceive)
	_, err := r.send(t.Context(), request("k", header("x"), a))
	if err == nil || r.leader.submits != 0 {
		t.Errorf("a message of more than 4 MiB: got %v", err)
	}
}

func TestSubmissionToADeposedLeaderReturnsItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		code   codes.Code
		reason dtaskv1.ErrorReason
	}{
		{"term over", sequencer.ErrTermEnded, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER},
		{"unknown", sequencer.ErrOutcomeUnknown, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.raft.set(func(f *fakeRaft) { f.id, f.address = "n2", "n2:1" })
			r.leader.fail = c.err
			_, err := r.send(t.Context(), request("k", header("x"), task("a")))
			wantError(t, err, c.code, c.reason)
		})
	}
}

func TestJobsOfATermThatEndedAreRedirectedToTheNextLeader(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.LeaderWait = time.Hour })
	r.raft.set(func(f *fakeRaft) { f.asked = make(chan struct{}) })
	r.leader.fail = sequencer.ErrTermEnded
	answered := make(chan error, 1)
	go func() {
		_, err := r.send(t.Context(), request("k", header("x"), task("a")))
		answered <- err
	}()
	r.awaitHeld() // leadership is being transferred
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state, f.term = "n2", "n2:1", "follower", 2 })
	d := wantError(t, <-answered, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	if d.GetLeaderAddress() != "n2:1" {
		t.Errorf("got hint %v", d)
	}
}

func TestAFollowerRefusesASubmissionBeforeItIsSent(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.term = 2 }) // elected, and not ready
	stream, err := r.jobs.Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv() // nothing was sent
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
}

func TestDeposedLeaderRefusesTheRestOfASubmission(t *testing.T) {
	t.Parallel()
	r := setup(t)
	stream, err := r.jobs.Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := request("k", header("x"), task("a"))
	first.Total, first.Job, first.More = 2, 1, true
	complete := request("l", header("x"), task("a"))
	complete.Job = 2
	if err := stream.Send(&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{first, complete}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetResults()[0].GetStored().GetId() != "1" {
		t.Fatalf("got %v, %v", m, err)
	}
	r.raft.set(func(f *fakeRaft) { f.id, f.address = "n2", "n2:1" })
	r.leading(false)
	rest := &dtaskv1.JobPart{Job: 1, Tasks: []*dtaskv1.TaskSpec{task("b")}}
	if err := stream.Send(&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{rest}}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	if !r.uploads.TryAcquire(r.cfg.UploadBytes) {
		t.Error("the memory of an ended submission is still held")
	}
}

func TestTheMemoryOfSubmissionsIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.UploadBytes = 2 * maxMessage })
	if !r.uploads.TryAcquire(2*maxMessage - 100) {
		t.Fatal("no free memory at the start")
	}
	_, err := r.send(t.Context(), request("k", header("x"), task("a")))
	if d := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY); d.GetRetryAfterMs() <= 0 {
		t.Error("missing retry delay")
	}
	r.uploads.Release(2*maxMessage - 100)
	if _, err := r.send(t.Context(), request("k", header("x"), task("a"))); err != nil {
		t.Errorf("with free memory again: got %v", err)
	}
}

func TestSubmissionHoldsTheMemoryOfAllItsParts(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.UploadBytes = 3 * maxMessage })
	var messages []*dtaskv1.JobPart
	for i := range 8 { // half a MiB each: 4 MiB in all
		m := &dtaskv1.JobPart{}
		if i == 0 {
			m = &dtaskv1.JobPart{Header: header("x"), IdempotencyKey: "k", Total: 64}
		}
		for k := range 8 {
			a := task(fmt.Sprint("t", i*8+k))
			a.Body.Payload = make([]byte, 60<<10)
			m.Tasks = append(m.Tasks, a)
		}
		messages = append(messages, m)
	}
	_, err := r.send(t.Context(), messages...)
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	if !r.uploads.TryAcquire(r.cfg.UploadBytes) {
		t.Error("the memory of an ended submission is still held")
	}
}

func TestStalledSubmissionIsRejectedWithBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		began := time.Now()
		stream, err := r.jobs.Submit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first := request("k", header("x"), task("a"))
		first.Total, first.Job, first.More = 2, 1, true
		if err := stream.Send(&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{first}}); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		err = errorOf(m.GetResults()[0])
		wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("got a refusal after %s, want 10 s", got)
		}
	})
}

func TestSubmissionOfACancelledCallReleasesItsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.leader.hang = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.send(ctx, request("k", header("x"), task("a"))); err == nil {
			t.Error("got an answer, want none")
		}
		synctest.Wait()
		if !r.uploads.TryAcquire(r.cfg.UploadBytes) {
			t.Error("the memory of an ended submission is still held")
		}
	})
}

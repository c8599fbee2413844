package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestACallIsRedirectedToTheLeader(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{getJob: func(string) (*dtaskv1.Job, error) { return nil, notLeader("b:1") }})
	n.serve(t, "b:1", &fake{getJob: func(id string) (*dtaskv1.Job, error) { return &dtaskv1.Job{Id: id}, nil }})

	job, err := c.Job(t.Context(), "42", ReadOptions{})
	if err != nil || job.GetId() != "42" {
		t.Fatalf("got %v, %v; want job 42", job, err)
	}
}

func TestATryFollowsAtMostThreeRedirects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"r0:1"}, Timeout: 20 * time.Millisecond})
		var fakes []*fake
		for i := range 6 { // each redirects to the next; only one round fits into the timeout
			f := &fake{getJob: func(string) (*dtaskv1.Job, error) { return nil, notLeader(fmt.Sprintf("r%d:1", i+1)) }}
			fakes = append(fakes, f)
			n.serve(t, fmt.Sprintf("r%d:1", i), f)
		}
		_, err := c.Job(t.Context(), "42", ReadOptions{})
		if !errors.Is(err, ErrUnreachable) {
			t.Fatalf("got error %v, want ErrUnreachable", err)
		}
		var calls []int64
		for _, f := range fakes {
			calls = append(calls, f.calls.Load())
		}
		if want := []int64{1, 1, 1, 1, 0, 0}; !slices.Equal(calls, want) {
			t.Errorf("calls per coordinator: got %v, want %v", calls, want)
		}
	})
}

func TestSeedsAreTriedForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"seed:1"}})
		seed := &fake{getJob: func(string) (*dtaskv1.Job, error) { return nil, notLeader("unreachable:1") }}
		n.serve(t, "seed:1", seed)
		back := time.Now().Add(30 * time.Second)
		seed.getJob = func(id string) (*dtaskv1.Job, error) {
			if time.Now().Before(back) {
				return nil, notLeader("unreachable:1") // unreachable
			}
			return &dtaskv1.Job{Id: id}, nil
		}
		for i := range 2 * maxHints {
			c.book.learn(fmt.Sprintf("hint%d:1", i))
		}
		if _, err := c.Job(t.Context(), "42", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if all := c.book.order(); !slices.Contains(all, "seed:1") || len(all) > maxHints+1 {
			t.Errorf("got %d addresses %v, want the seed and at most %d hints", len(all), all, maxHints)
		}
	})
}

func TestACallLeavesACoordinatorThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		hung := &fake{getJob: func(id string) (*dtaskv1.Job, error) { return &dtaskv1.Job{Id: id}, nil }}
		n.serve(t, "a:1", hung)
		n.serve(t, "b:1", &fake{getJob: func(id string) (*dtaskv1.Job, error) { return &dtaskv1.Job{Id: id}, nil }})
		if _, err := c.Job(t.Context(), "1", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		hung.frozen.Store(true)
		began := time.Now()
		if _, err := c.Job(t.Context(), "2", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 2500*time.Millisecond {
			t.Errorf("got the hung coordinator left after %s, want at most 2.5s", d)
		}
		began = time.Now()
		if _, err := c.Job(t.Context(), "3", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("the next call took %s, want the other coordinator immediately", d)
		}
	})
}

func TestUnknownOutcomeIsRetriedWithTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		var keys []string
		n.serve(t, "a:1", &fake{submit: func(key string, _ *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
			keys = append(keys, key)
			if len(keys) < 4 {
				return nil, refusal(codes.Unavailable, "leadership lost", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN})
			}
			return &dtaskv1.StoredJob{Id: "7", Existed: true}, nil
		}})
		got, err := c.Submit(t.Context(), oneTask(), SubmitOptions{})
		if err != nil || got.ID != "7" || !got.Existed {
			t.Fatalf("got %+v, %v; want job 7, which existed", got, err)
		}
		if len(keys) != 4 || len(keys[0]) != 32 || len(slices.Compact(keys)) != 1 {
			t.Errorf("got keys %q, want one of 32 digits four times", keys)
		}
	})
}

func TestTimeoutReturnsTheKeyAndAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}, Timeout: 5 * time.Second})
		n.serve(t, "a:1", &fake{submit: func(string, *dtaskv1.JobHeader, []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
			return nil, refusal(codes.Unavailable, "leadership lost", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN})
		}})
		began := time.Now()
		_, err := c.Submit(t.Context(), oneTask(), SubmitOptions{Key: "k1"})
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, ErrUnreachable) || e.Key != "k1" || !e.Unknown {
			t.Fatalf("got %#v, want unreachable, unknown, with key k1", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("got an error after %s, want 5s", d)
		}
	})
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	for reason, want := range map[dtaskv1.ErrorReason]error{
		dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND: ErrNotFound,
		dtaskv1.ErrorReason_ERROR_REASON_CONFLICT:  ErrConflict,
		dtaskv1.ErrorReason_ERROR_REASON_REFUSED:   ErrRefused,
		dtaskv1.ErrorReason_ERROR_REASON_INVALID:   ErrInvalid,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			t.Parallel()
			n, c := setup(t, Config{Addrs: []string{"a:1"}})
			f := &fake{getJob: func(string) (*dtaskv1.Job, error) {
				return nil, refusal(codes.Unknown, "no", &dtaskv1.ErrorDetail{Reason: reason, Faults: []string{"line"}})
			}}
			n.serve(t, "a:1", f)
			_, err := c.Job(t.Context(), "1", ReadOptions{})
			if !errors.Is(err, want) || f.calls.Load() != 1 {
				t.Errorf("got %v after %d calls, want %v after one", err, f.calls.Load(), want)
			}
		})
	}
}

func TestBusyLeaderIsRetriedAfterItsRetryDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		var at []time.Time
		n.serve(t, "a:1", &fake{getJob: func(id string) (*dtaskv1.Job, error) {
			if at = append(at, time.Now()); len(at) == 1 {
				return nil, refusal(codes.ResourceExhausted, "full", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 700})
			}
			return &dtaskv1.Job{Id: id}, nil
		}})
		if _, err := c.Job(t.Context(), "1", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := at[1].Sub(at[0]); d < 700*time.Millisecond || d > time.Second {
			t.Errorf("got a retry after %s, want 700ms", d)
		}
	})
}

func TestWatchResumesAtAnotherCoordinatorWhenTheLeaderHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		running := &dtaskv1.Job{Id: "1", State: dtaskv1.JobState_JOB_STATE_RUNNING}
		hung := &fake{}
		hung.watch = func(s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
			if err := s.Send(&dtaskv1.WatchJobResponse{Job: running}); err != nil {
				return err
			}
			time.AfterFunc(10*time.Minute, func() { hung.frozen.Store(true) }) // long after Config.Timeout
			<-hung.hang
			return nil
		}
		n.serve(t, "a:1", hung)
		n.serve(t, "b:1", &fake{watch: func(s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
			if err := s.Send(&dtaskv1.WatchJobResponse{Job: running}); err != nil {
				return err
			}
			return s.Send(&dtaskv1.WatchJobResponse{Job: &dtaskv1.Job{Id: "1", State: dtaskv1.JobState_JOB_STATE_COMPLETED}})
		}})
		began := time.Now()
		var states []string
		for job, err := range c.Watch(t.Context(), "1") {
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, job.GetState().String())
		}
		if want := []string{"JOB_STATE_RUNNING", "JOB_STATE_COMPLETED"}; !slices.Equal(states, want) {
			t.Errorf("got %v, want %v without a repeat", states, want)
		}
		if d := time.Since(began) - 10*time.Minute; d > 2600*time.Millisecond {
			t.Errorf("got the hung leader left after %s, want at most 2.5s", d)
		}
	})
}

func TestTasksResumeAfterTheLastOne(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	broken := false
	n.serve(t, "a:1", &fake{tasks: func(s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
		for i := range uint32(5) {
			if i == 3 && !broken {
				broken = true
				return notLeader("")
			}
			if err := s.Send(&dtaskv1.ListTasksResponse{Tasks: []*dtaskv1.Task{{Index: i}}}); err != nil {
				return err
			}
		}
		return nil
	}})
	var got []uint32
	for task, err := range c.Tasks(t.Context(), "1", TaskFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, task.GetIndex())
	}
	if diff := cmp.Diff([]uint32{0, 1, 2, 3, 4}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheMostUrgentTasksAreReadAgainAsAWhole(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	broken := false
	n.serve(t, "a:1", &fake{tasks: func(s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
		if err := s.Send(&dtaskv1.ListTasksResponse{Tasks: []*dtaskv1.Task{{Index: 7}}, Selected: 9}); err != nil {
			return err
		}
		if !broken {
			broken = true
			return notLeader("")
		}
		return s.Send(&dtaskv1.ListTasksResponse{Tasks: []*dtaskv1.Task{{Index: 3}}})
	}})
	tasks, selected, err := c.MostUrgentTasks(t.Context(), "1", TaskFilter{}, 2)
	if err != nil || len(tasks) != 2 || tasks[0].GetIndex() != 7 || tasks[1].GetIndex() != 3 || selected != 9 {
		t.Errorf("got %v of %d, %v; want tasks 7 and 3 of 9, in this order", tasks, selected, err)
	}
}

func TestAJobIsReadWithItsTasksInOneCall(t *testing.T) {
	t.Parallel()
	for _, with := range []bool{true, false} {
		n, c := setup(t, Config{Addrs: []string{"a:1"}})
		f := &fake{
			tasks: func(s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
				page := &dtaskv1.ListTasksResponse{Tasks: []*dtaskv1.Task{{Index: 7}}, Selected: 9}
				if with { // a coordinator of an older version knows no such field
					page.Job = &dtaskv1.Job{Id: "1", Levels: []uint32{9}}
				}
				return s.Send(page)
			},
			getJob: func(string) (*dtaskv1.Job, error) { return &dtaskv1.Job{Id: "1", Levels: []uint32{9}}, nil },
		}
		n.serve(t, "a:1", f)
		job, tasks, selected, err := c.JobWithTasks(t.Context(), "1", TaskFilter{}, 2)
		if err != nil || job.GetId() != "1" || len(job.GetLevels()) != 1 || len(tasks) != 1 || selected != 9 {
			t.Errorf("got %v with %v of %d, %v", job, tasks, selected, err)
		}
		if calls := f.calls.Load(); with != (calls == 1) {
			t.Errorf("with the job in the answer: %t, calls: %d", with, calls)
		}
	}
}

func TestLogsResumeAfterTheLastByte(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	broken := false
	n.serve(t, "a:1", &fake{logs: func(s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		if err := s.Send(&dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Data: []byte("one\ntwo\n")}}}); err != nil {
			return err
		}
		if !broken {
			broken = true
			return notLeader("")
		}
		return s.Send(&dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Offset: 8, Data: []byte("three\n")}}})
	}})
	var out strings.Builder
	if _, err := c.Logs(t.Context(), LogsRequest{Job: "1", Task: "a", Attempt: 1, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "one\ntwo\nthree\n" {
		t.Errorf("got %q", got)
	}
}

// piecesOf sends pieces of a log, one per millisecond from 1000 on; those that start with
// ! are of standard error.
func piecesOf(s grpc.ServerStreamingServer[dtaskv1.LogsResponse], texts ...string) error {
	offset, resp := uint64(0), &dtaskv1.LogsResponse{}
	for i, text := range texts {
		stream := dtaskv1.LogStream_LOG_STREAM_STDOUT
		if strings.HasPrefix(text, "!") {
			stream = dtaskv1.LogStream_LOG_STREAM_STDERR
		}
		if n, isGap := strings.CutPrefix(text, "gap "); isGap {
			skip, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				return err
			}
			offset += skip
			continue
		}
		resp.Pieces = append(resp.Pieces, &dtaskv1.LogPiece{Stream: stream, TimeMs: 1000 + int64(i), Offset: offset, Data: []byte(text)})
		offset += uint64(len(text))
	}
	return s.Send(resp)
}

func TestLogsAreCopiedInOrderAndWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{logs: func(s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		return piecesOf(s, "one\n", "!two\n", "gap 100", "three\nfo", "!err\n", "ur\n", "open")
	}})
	const gap = "\n[dtask: 100 bytes omitted]\n"
	for name, x := range map[string]struct {
		r                LogsRequest
		out, errs, mixed bool
		want             string
	}{
		"both":            {mixed: true, want: "one\n!two\n" + gap + "three\nfo!err\nur\nopen"},
		"standard output": {out: true, want: "one\n" + gap + "three\nfour\nopen"},
		"standard error":  {errs: true, want: "!two\n" + gap + "!err\n"},
		"the last lines":  {r: LogsRequest{Tail: 2}, mixed: true, want: "four\nopen"},
		"one last line":   {r: LogsRequest{Tail: 1, Follow: true}, out: true, want: "open"},
		"more lines than": {r: LogsRequest{Tail: 50}, errs: true, want: "!two\n" + gap + "!err\n"},
		"since":           {r: LogsRequest{Since: time.UnixMilli(1004)}, mixed: true, want: "!err\nur\nopen"},
	} {
		var b strings.Builder
		x.r.Job, x.r.Task, x.r.Attempt = "1", "a", 1
		if x.out || x.mixed {
			x.r.Stdout = &b
		}
		if x.errs || x.mixed {
			x.r.Stderr = &b
		}
		if _, err := c.Logs(t.Context(), x.r); err != nil || b.String() != x.want {
			t.Errorf("%s: got %q, %v, want %q", name, b.String(), err, x.want)
		}
	}
	if _, err := c.Logs(t.Context(), LogsRequest{Job: "1", Task: "a", Tail: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative tail: got %v", err)
	}
}

func TestLargeJobIsSentInSmallMessagesAndInOrder(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	job := oneTask()
	job.Tasks = nil
	for i := range 3000 {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint(i), Body: &dtaskv1.TaskBody{Payload: make([]byte, 1000)}})
	}
	messages := 0
	parts := newJobParts(job, &dtaskv1.JobPart{})
	for more := true; more; messages++ {
		part, _, err := parts.next()
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(part); size > messageBytes {
			t.Errorf("part %d: got %d bytes, want at most %d", messages, size, messageBytes)
		}
		more = part.GetMore()
	}
	if messages < 6 {
		t.Errorf("got %d messages for 3 MB, want at least 6", messages)
	}
	var got []*dtaskv1.TaskSpec
	n.serve(t, "a:1", &fake{submit: func(_ string, _ *dtaskv1.JobHeader, tasks []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		got = tasks
		return &dtaskv1.StoredJob{Id: "1"}, nil
	}})
	if _, err := c.Submit(t.Context(), job, SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, task := range got {
		if task.GetId() != fmt.Sprint(i) {
			t.Fatalf("task %d: got %q", i, task.GetId())
		}
	}
	if len(got) != 3000 {
		t.Errorf("got %d tasks, want 3000", len(got))
	}
}

func TestAJobThatFitsIntoOneMessageIsSentInOne(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	job := oneTask()
	job.Tasks = nil
	for i := range 500 {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint(i)})
	}
	var messages int
	f := &fake{message: func(m *dtaskv1.SubmitRequest) ([]*dtaskv1.SubmitResult, error) {
		messages += len(m.GetParts())
		return nil, nil
	}, submit: func(_ string, _ *dtaskv1.JobHeader, tasks []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		return &dtaskv1.StoredJob{Id: fmt.Sprint(len(tasks))}, nil
	}}
	n.serve(t, "a:1", f)
	for _, c2 := range []struct{ payload, messages int }{{300, 1}, {1200, 2}} {
		for _, task := range job.GetTasks() {
			task.Body = &dtaskv1.TaskBody{Payload: make([]byte, c2.payload)}
		}
		messages = 0
		if got, err := c.Submit(t.Context(), job, SubmitOptions{}); err != nil || got.ID != "500" || messages != c2.messages {
			t.Errorf("with payloads of %d bytes: got %+v, %v in %d messages; want %d", c2.payload, got, err, messages, c2.messages)
		}
	}
}

func TestJobsReadsPagesUpToTheLimit(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	since, before := time.UnixMilli(5000), time.UnixMilli(9000)
	n.serve(t, "a:1", &fake{list: func(r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
		if r.GetSubmittedSince() != 5000 || r.GetSubmittedBefore() != 9000 {
			t.Errorf("got a request for jobs from %d to %d", r.GetSubmittedSince(), r.GetSubmittedBefore())
		}
		if r.GetPageToken() == "" {
			return &dtaskv1.ListJobsResponse{Jobs: []*dtaskv1.Job{{Id: "5"}, {Id: "4"}}, NextPageToken: "x"}, nil
		}
		return &dtaskv1.ListJobsResponse{Jobs: []*dtaskv1.Job{{Id: "3"}, {Id: "2"}}, NextPageToken: "y", Incomplete: true}, nil
	}})
	var got []string
	told := 0
	for job, err := range c.Jobs(t.Context(), JobFilter{Limit: 3, Since: since, Before: before, Incomplete: func() { told++ }}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, job.GetId())
	}
	if want := []string{"5", "4", "3"}; !slices.Equal(got, want) || told != 1 {
		t.Errorf("got %v, want %v; got %d calls of Incomplete for one page of two", got, want, told)
	}
}

func TestClusterStatusPrefersALeaderOfTheHighestTermAndNeverADeadOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1", "c:1", "dead:1"}})
		answer := func(r *dtaskv1.StatusResponse) *fake {
			return &fake{status: func() (*dtaskv1.StatusResponse, error) { return r, nil }}
		}
		n.serve(t, "a:1", answer(&dtaskv1.StatusResponse{Leader: "n4", Term: 9, Members: []*dtaskv1.Member{{Id: "n4", State: "unreachable"}}}))
		n.serve(t, "b:1", answer(&dtaskv1.StatusResponse{Leader: "n1", Term: 3}))
		hung := answer(nil)
		hung.frozen.Store(true)
		n.serve(t, "c:1", hung)

		began := time.Now()
		got, err := c.ClusterStatus(t.Context())
		if err != nil || got.GetLeader() != "n1" {
			t.Errorf("got %v, %v; want leader n1", got, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %s, want at most 5s", d)
		}
	})
}

func TestTheCallersContextEndsACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := setup(t, Config{Addrs: []string{"nobody:1"}})
		stop := errors.New("stop")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, stop)
		defer cancel()
		if _, err := c.Wait(ctx, "1"); !errors.Is(err, stop) || errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v, want the cause of the context", err)
		}
	})
}

func TestInvalidConfigurationIsRefusedWithAllFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Addrs: []string{"nowhere"}, Timeout: -1})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "invalid Timeout") {
		t.Errorf("got %v, want both faults", err)
	}
}

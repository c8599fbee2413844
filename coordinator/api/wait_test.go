package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

type waitStream = grpc.ServerStreamingClient[dtaskv1.WaitJobsResponse]

func (r *replica) waitFor(ctx context.Context, t *testing.T, req *dtaskv1.WaitJobsRequest) waitStream {
	t.Helper()
	stream, err := r.jobs.WaitJobs(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// ends reads the next message: ids of finished and of unknown jobs, and how many jobs
// remain.
func ends(t *testing.T, s waitStream) (finished, unknown string, remaining uint32) {
	t.Helper()
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, job := range m.GetFinished() {
		if !isTerminal(job.GetState()) || job.GetFreshness() != nil {
			t.Errorf("got %v", job)
		}
		ids = append(ids, job.GetId())
	}
	if m.GetFreshness().GetAppliedIndex() == 0 {
		t.Error("missing freshness")
	}
	return strings.Join(ids, " "), strings.Join(m.GetUnknown(), " "), m.GetRemaining()
}

func wantEnds(t *testing.T, s waitStream, finished, unknown string, remaining uint32) {
	t.Helper()
	if e, u, l := ends(t, s); e != finished || u != unknown || l != remaining {
		t.Errorf("got finished %q, unknown %q, %d remaining; want %q, %q, %d", e, u, l, finished, unknown, remaining)
	}
}

func wantOver(t *testing.T, s waitStream) {
	t.Helper()
	if m, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want the end", m, err)
	}
}

func TestJobsThatFinishTogetherShareAMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		for i := range 6 {
			r.submit(t, fmt.Sprint("x", i), task("a"), task("b", 0))
		}
		w := r.worker(t)
		r.leader.op(t, &fsm.CancelJob{Job: 2, Reason: "r"})
		r.complete(t, held(3, 0, 1, w), "")
		s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"4", "99", "2", "5", "3", "1", "2", "no"}})
		wantEnds(t, s, "2", "no 99", 4)
		time.Sleep(2 * watchInterval)
		start := time.Now()
		go func() { // one after another, all between two scans
			for id := fsm.JobID(1); id <= 4; id++ {
				if id != 2 {
					time.Sleep(time.Millisecond)
					r.leader.op(t, &fsm.CancelJob{Job: id, Reason: "r"})
				}
			}
		}()
		wantEnds(t, s, "1", "", 3)
		wantEnds(t, s, "3 4", "", 1)
		if took := time.Since(start); took != watchInterval+time.Millisecond {
			t.Errorf("got reports after %s", took)
		}
		start = time.Now()
		r.leader.op(t, &fsm.CancelJob{Job: 5, Reason: "r"})
		wantEnds(t, s, "5", "", 0)
		if took := time.Since(start); took != 0 {
			t.Errorf("got the last report after %s", took)
		}
		wantOver(t, s)
	})
}

func TestTheLastJobIsReportedTheMomentItEnds(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 240 * time.Millisecond, 990 * time.Millisecond} {
		t.Run(lasts.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t)
				for i := range 2 {
					r.submit(t, fmt.Sprint("x", i), task("a"), task("b", 0))
				}
				s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1", "2"}})
				wantEnds(t, s, "", "", 2)
				start := time.Now()
				var running sync.WaitGroup
				running.Go(func() { // the state changes continuously
					for worker := fsm.WorkerID(1); time.Since(start) < lasts; worker++ {
						time.Sleep(time.Millisecond)
						r.leader.op(t, &fsm.RegisterWorker{ID: worker, Name: fmt.Sprint("w", worker), Incarnation: "i", Slots: 1})
					}
					r.leader.op(t, &fsm.CancelJob{Job: 2, Reason: "r"}, &fsm.CancelJob{Job: 1, Reason: "r"})
				})
				for left := uint32(2); left > 0; {
					ended, _, remaining := ends(t, s)
					if ended == "" {
						t.Errorf("got a report of no end at %s", time.Since(start))
					}
					left = remaining
				}
				// One may be reported before the other, and the pause between them is short.
				if took := time.Since(start); took < lasts || took > lasts+minWaitInterval {
					t.Errorf("jobs that ended after %s: got reports after %s", lasts, took)
				}
				wantOver(t, s)
				running.Wait()
			})
		})
	}
}

func TestAWaitSendsHeartbeatsWhileNoJobFinishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"), task("b"))
		r.submit(t, "y", task("a"), task("b"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := r.waitFor(ctx, t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1", "2"}})
		wantEnds(t, s, "", "", 2)
		last := time.Now()
		w := r.worker(t)
		r.complete(t, held(1, 0, 1, w), "")
		r.complete(t, held(2, 1, 1, w), "")
		for range 3 {
			m, err := s.Recv()
			if err != nil || m.GetTasksCompleted() != 2 || m.GetRemaining() != 2 {
				t.Fatalf("got %v, %v, want two tasks completed", m, err)
			}
			if d := time.Since(last); d < watchRepeatInterval-watchInterval || d > watchRepeatInterval {
				t.Errorf("got a repeat after %s, want 1 s", d)
			}
			last = time.Now()
		}
	})
}

func TestAWaitReportsArchivedJobs(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, Summarize)
	r := setup(t, change)
	r.archiveTwo(t)
	s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1", "2"}, Consistency: stale})
	m, err := s.Recv()
	if err != nil || len(m.GetFinished()) != 2 || m.GetFinished()[0].GetTasksByState()["aggregated"] != 1 || m.GetFinished()[1].GetState() != dtaskv1.JobState_JOB_STATE_FAILED {
		t.Fatalf("got %v, %v", m, err)
	}
	wantOver(t, s)
}

func TestAnOutlineOmitsWhatTheJobWasSubmittedWith(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Labels, h.MaxFailures = map[string]string{"k": "v"}, 3
	if _, err := r.send(t.Context(), request("k", h, diamond()...)); err != nil {
		t.Fatal(err)
	}
	r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "r"})
	show := func(outline bool) *dtaskv1.Job {
		m, err := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1"}, Outline: outline}).Recv()
		if err != nil || len(m.GetFinished()) != 1 {
			t.Fatalf("got %v, %v", m, err)
		}
		return m.GetFinished()[0]
	}
	want, got := show(false), show(true)
	if want.GetName() == "" || want.GetLabels() == nil || want.GetTasksByState() == nil || want.GetMaxFailures() == 0 {
		t.Errorf("got whole job %v", want)
	}
	want.Name, want.Owner, want.Labels, want.MaxFailures, want.TasksByState = "", "", nil, 0, nil
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestJobsThatDoNotFitIntoAMessageAreSentInSeveral(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const jobs, labels = 250, 60
	var ids []string
	h := header("x")
	h.Labels = make(map[string]string)
	for i := range labels {
		h.Labels[strings.Repeat("k", i+1)] = strings.Repeat("v", 60)
	}
	for i := range jobs {
		if _, err := r.send(t.Context(), request("k"+strconv.Itoa(i), h, task("a"))); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, strconv.Itoa(i+1))
		r.leader.op(t, &fsm.CancelJob{Job: fsm.JobID(i + 1), Reason: "r"}) //nolint:gosec // few
	}
	s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: ids})
	first, _, remaining := ends(t, s)
	second, _, none := ends(t, s)
	got := slices.Concat(strings.Fields(first), strings.Fields(second))
	if !slices.Equal(got, ids) || remaining == 0 || int(remaining) != len(strings.Fields(second)) || none != 0 {
		t.Errorf("got %q with %d remaining, then %q with %d remaining", first, remaining, second, none)
	}
	wantOver(t, s)
}

func TestAWaitSurvivesAChangeOfLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1"}})
		wantEnds(t, s, "", "", 1)
		r.leading(false)
		time.Sleep(watchInterval)
		r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "at the new leader"}) // as this replica applies it
		wantEnds(t, s, "1", "", 0)
		wantOver(t, s)
	})
}

func TestAWaitBeyondTheLogIsRedirectedToTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		r.raft.set(func(f *fakeRaft) { f.id, f.address = "", "" })
		s := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1"}, FromIndex: r.machine.Index() + 100, Consistency: stale})
		_, err := s.Recv()
		wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	})
}

func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	for _, n := range []int{0, maxCallWaits + 1} {
		_, err := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: make([]string, n)}).Recv()
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
	for i := range maxWaits / maxCallWaits {
		req := &dtaskv1.WaitJobsRequest{Jobs: []string{"1"}}
		for k := range maxCallWaits - 1 {
			req.Jobs = append(req.Jobs, fmt.Sprint("no", k))
		}
		if i > 0 {
			req.Jobs = slices.Repeat([]string{"1"}, maxCallWaits)
		}
		if _, err := r.waitFor(t.Context(), t, req).Recv(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.waitFor(t.Context(), t, &dtaskv1.WaitJobsRequest{Jobs: []string{"1"}}).Recv()
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
}

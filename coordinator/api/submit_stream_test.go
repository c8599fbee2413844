package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// numbered is a message of jobs of one part, numbered from first.
func numbered(first uint64, jobs ...*dtaskv1.JobPart) *dtaskv1.SubmitRequest {
	for i, p := range jobs {
		p.Job = first + uint64(i)
	}
	return &dtaskv1.SubmitRequest{Parts: jobs}
}

func reasonOf(r *dtaskv1.SubmitResult) dtaskv1.ErrorReason { return r.GetDetail().GetReason() }

func TestEachOfManyJobsHasItsOwnResult(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if _, err := r.send(t.Context(), request("taken", header("x"), diamond()...)); err != nil {
		t.Fatal(err)
	}
	got, err := r.exchange(t.Context(), numbered(1,
		request("a", header("a"), diamond()...),
		request("taken", header("y"), diamond()...),
		request("faulty", header("x"), task("same"), task("same")),
		request("taken", header("x"), diamond()...),
		request("b", header("b"), task("t")),
		request("", header("c"), task("t")),
	))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 6 || got[1].GetStored().GetId() != "2" || got[5].GetStored().GetId() != "3" || !got[4].GetStored().GetExisted() || got[4].GetStored().GetId() != "1" {
		t.Errorf("got %v", got)
	}
	if got[2].GetStored() != nil || codes.Code(got[2].GetCode()) != codes.AlreadyExists || reasonOf(got[2]) != dtaskv1.ErrorReason_ERROR_REASON_CONFLICT {
		t.Errorf("a key of another job: got %v", got[2])
	}
	if codes.Code(got[3].GetCode()) != codes.InvalidArgument || len(got[3].GetDetail().GetFaults()) == 0 || reasonOf(got[6]) != dtaskv1.ErrorReason_ERROR_REASON_INVALID {
		t.Errorf("jobs with faults: got %v and %v", got[3], got[6])
	}
}

func TestJobWithoutAHeaderHasThatOfThePreviousJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	whole := func() []*dtaskv1.JobPart {
		filled := header("x")
		filled.Policies[0].TimeoutMs, filled.Policies[0].Retry = 0, nil // which a coordinator fills in
		unsound := header("")
		return []*dtaskv1.JobPart{
			request("a", filled, diamond()...),
			request("b", proto.CloneOf(filled), task("a"), task("a")),
			request("c", proto.CloneOf(filled), task("t")),
			request("", header("y"), task("t")),
			request("d", header("y"), diamond()...),
			request("e", unsound, task("t")),
			request("f", unsound, diamond()...),
		}
	}
	spare := whole()
	for _, i := range []int{1, 2, 4, 6} {
		spare[i].Header = nil
	}
	// The second message repeats the first, so that a digest that differs is a
	// conflict.
	for n, jobs := range [][]*dtaskv1.JobPart{whole(), spare} {
		results, err := r.exchange(t.Context(), numbered(1, jobs...))
		if err != nil {
			t.Fatal(err)
		}
		for i := range jobs {
			got := results[uint64(i+1)]
			if sound := i == 0 || i == 2 || i == 4; (got.GetStored() != nil) != sound || got.GetStored().GetExisted() != (sound && n == 1) {
				t.Errorf("message %d, job %d: got %v", n, i, got)
			}
			if i > 4 && !strings.Contains(got.String(), "job.name") {
				t.Errorf("message %d, job %d: got %v", n, i, got)
			}
		}
	}
	// A header is not inherited from another message.
	alone := request("alone", nil, task("t"))
	results, err := r.exchange(t.Context(), numbered(1, request("g", header("x"), task("t"))), numbered(2, alone))
	if err != nil || !strings.Contains(results[2].String(), "header: missing") {
		t.Errorf("first job of a message without a header: got %v, %v", results, err)
	}
}

func TestMessagesOfJobsAreBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var jobs []*dtaskv1.JobPart
	for i := range maxParts + 1 {
		jobs = append(jobs, request(fmt.Sprint(i), header("x"), task("t")))
	}
	results, err := r.exchange(t.Context(), numbered(1, jobs...))
	if err != nil || len(results) != len(jobs) {
		t.Fatalf("got %d results, %v", len(results), err)
	}
	for _, got := range results {
		if reasonOf(got) != dtaskv1.ErrorReason_ERROR_REASON_INVALID {
			t.Fatalf("got %v", got)
		}
	}
	if r.leader.submits != 0 {
		t.Error("a job of an oversized message was submitted")
	}
}

func TestFaultsOfManyJobsHaveSeveralMessages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	stream, err := r.jobs.Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 200
	var list []*dtaskv1.JobPart
	for i := range jobs {
		list = append(list, request(fmt.Sprint(i), header("x"), task(strings.Repeat("n", 3000)), task("a"), task("a")))
	}
	if err := stream.Send(numbered(1, list...)); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < jobs; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got += len(m.GetResults())
		if size := proto.Size(m); size > resultBytes+2*maxFaultBytes {
			t.Errorf("got a message of %d bytes", size)
		}
	}
}

func TestLeaderThatIsBusyOrDeposedFailsEachJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for want, fail := range map[dtaskv1.ErrorReason]error{
		dtaskv1.ErrorReason_ERROR_REASON_BUSY:            &sequencer.BusyError{What: "full"},
		dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN: sequencer.ErrOutcomeUnknown,
	} {
		r.leader.fail = fail
		results, err := r.exchange(t.Context(), numbered(1, request("a", header("a"), task("t"))))
		if err != nil || reasonOf(results[1]) != want {
			t.Errorf("got %v, %v, want %v", results, err, want)
		}
	}
}

func TestPartsOfJobsMayAlternate(t *testing.T) {
	t.Parallel()
	r := setup(t)
	large := func(number uint64, key string) (first, rest *dtaskv1.JobPart) {
		first, rest = request(key, header(key), task("a")), &dtaskv1.JobPart{Tasks: []*dtaskv1.TaskSpec{task("b")}}
		first.Job, first.More, first.Total, rest.Job = number, true, 2, number
		return first, rest
	}
	a, endOfA := large(1, "a")
	b, endOfB := large(2, "b")
	bad, endOfBad := large(4, "bad")
	bad.Tasks = []*dtaskv1.TaskSpec{task("x"), task("x")}
	small := request("small", header("small"), task("t"))
	small.Job = 3
	results, err := r.exchange(t.Context(),
		&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{a, b, small, bad}},
		&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{endOfB, endOfBad}},
		&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{endOfA}},
	)
	if err != nil || len(results) != 4 {
		t.Fatalf("got %v, %v", results, err)
	}
	for number := range uint64(3) {
		if got := results[number+1]; got.GetStored() == nil {
			t.Errorf("job %d: got %v", number+1, got)
		}
	}
	if reasonOf(results[4]) != dtaskv1.ErrorReason_ERROR_REASON_INVALID {
		t.Errorf("the invalid job: got %v", results[4])
	}
	if !r.uploads.TryAcquire(r.cfg.UploadBytes) {
		t.Error("the memory of an ended submission is still held")
	}
}

func TestJobWhoseLastPartIsMissingIsInvalid(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first := request("k", header("x"), task("a"))
	first.Job, first.More, first.Total = 1, true, 2
	results, err := r.exchange(t.Context(), &dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{first}})
	if err != nil || !strings.Contains(results[1].String(), "ended before the last part") {
		t.Errorf("got %v, %v", results, err)
	}
	if results, err = r.exchange(t.Context()); err != nil || len(results) != 0 {
		t.Errorf("a stream without messages: got %v, %v", results, err)
	}
}

func TestStreamIsNotReadWhileTooManyJobsArePending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.leader.hang = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.jobs.Submit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const messages, each = 5, maxParts / 2
		for n := range messages {
			var jobs []*dtaskv1.JobPart
			for i := range each {
				jobs = append(jobs, request(fmt.Sprint(n, "-", i), header("x"), task("t")))
			}
			if err := stream.Send(numbered(uint64(n*each+1), jobs...)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.leader.mu.Lock()
		defer r.leader.mu.Unlock()
		if r.leader.waiting != 2*each {
			t.Errorf("got %d pending jobs, want %d", r.leader.waiting, 2*each)
		}
	})
}

func TestSubmissionsInFlightAreAnsweredBeforeTheServerStops(t *testing.T) {
	t.Parallel()
	r := setup(t)
	stream, err := r.jobs.Submit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(numbered(1, request("k", header("x"), task("a")))); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetResults()[0].GetStored() == nil {
		t.Fatalf("got %v, %v", m, err)
	}
	r.stop.Do(func() { close(r.stopping) })
	_, err = stream.Recv()
	if errors.Is(err, io.EOF) || err == nil {
		t.Fatalf("got %v, want the reason that the replica stops", err)
	}
}

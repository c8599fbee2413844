package api

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOfManyJobsEachHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if _, err := r.send(t.Context(), request("taken", header("x"), diamond()...)); err != nil {
		t.Fatal(err)
	}
	faulty := request("faulty", header("x"), task("same"), task("same"))
	resp, err := r.jobs.SubmitMany(t.Context(), &dtaskv1.SubmitManyRequest{Jobs: []*dtaskv1.SubmitRequest{
		request("a", header("a"), diamond()...),
		request("taken", header("y"), diamond()...),
		faulty,
		request("taken", header("x"), diamond()...),
		request("b", header("b"), task("t")),
		request("", header("c"), task("t")),
	}})
	if err != nil {
		t.Fatal(err)
	}
	reason := func(i int) dtaskv1.ErrorReason { return resp.GetAnswers()[i].GetDetail().GetReason() }
	a := resp.GetAnswers()
	if len(a) != 6 || a[0].GetStored().GetId() != "2" || a[4].GetStored().GetId() != "3" || !a[3].GetStored().GetExisted() || a[3].GetStored().GetId() != "1" {
		t.Errorf("got %v", a)
	}
	if a[1].GetStored() != nil || codes.Code(a[1].GetCode()) != codes.AlreadyExists || reason(1) != dtaskv1.ErrorReason_ERROR_REASON_CONFLICT {
		t.Errorf("a key of another job: got %v", a[1])
	}
	if codes.Code(a[2].GetCode()) != codes.InvalidArgument || len(a[2].GetDetail().GetFaults()) == 0 || reason(5) != dtaskv1.ErrorReason_ERROR_REASON_INVALID {
		t.Errorf("jobs with faults: got %v and %v", a[2], a[5])
	}
}

func TestAJobOfACallWithoutAHeaderHasThatOfTheJobBefore(t *testing.T) {
	t.Parallel()
	r := setup(t)
	whole := func() []*dtaskv1.SubmitRequest {
		filled := header("x")
		filled.Policies[0].TimeoutMs, filled.Policies[0].Retry = 0, nil // which a coordinator fills in
		unsound := header("")
		return []*dtaskv1.SubmitRequest{
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
	// The second call is a repeat of the first, so that a digest that differs is a conflict.
	for n, call := range [][]*dtaskv1.SubmitRequest{whole(), spare} {
		resp, err := r.jobs.SubmitMany(t.Context(), &dtaskv1.SubmitManyRequest{Jobs: call})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range resp.GetAnswers() {
			if sound := i == 0 || i == 2 || i == 4; (a.GetStored() != nil) != sound || a.GetStored().GetExisted() != (sound && n == 1) {
				t.Errorf("call %d, job %d: got %v", n, i, a)
			}
			if i > 4 && !strings.Contains(a.String(), "job.name") {
				t.Errorf("call %d, job %d: got %v", n, i, a)
			}
		}
	}
	spare[1].IdempotencyKey, spare[1].Header = "alone", nil
	resp, err := r.jobs.SubmitMany(t.Context(), &dtaskv1.SubmitManyRequest{Jobs: spare[1:2]})
	if err != nil || !strings.Contains(resp.GetAnswers()[0].String(), "header: is missing") {
		t.Errorf("the first without one: got %v, %v", resp, err)
	}
}

func TestACallOfManyJobsIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for name, m := range map[string]*dtaskv1.SubmitManyRequest{
		"none":     {},
		"too many": {Jobs: make([]*dtaskv1.SubmitRequest, maxJobs+1)},
	} {
		for i := range m.GetJobs() {
			m.Jobs[i] = request(strconv.Itoa(i), header("x"), task("t"))
		}
		_, err := r.jobs.SubmitMany(t.Context(), m)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if name == "none" && r.leader.submits != 0 {
			t.Error("something was submitted")
		}
	}
	// The faults of all jobs share the room of one answer.
	m := &dtaskv1.SubmitManyRequest{}
	for i := range 200 {
		m.Jobs = append(m.Jobs, request(strconv.Itoa(i), header("x"), task(strings.Repeat("n", 3000))))
	}
	resp, err := r.jobs.SubmitMany(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, a := range resp.GetAnswers() {
		for _, line := range a.GetDetail().GetFaults() {
			size += len(line)
		}
		if codes.Code(a.GetCode()) != codes.InvalidArgument {
			t.Fatalf("got %v", a)
		}
	}
	if size > 2*maxFaultBytes {
		t.Errorf("%d bytes of faults", size)
	}
}

func TestALeaderThatIsBusyOrDeposedSaysSoForEachJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	m := &dtaskv1.SubmitManyRequest{Jobs: []*dtaskv1.SubmitRequest{request("a", header("a"), task("t"))}}
	for want, fail := range map[dtaskv1.ErrorReason]error{
		dtaskv1.ErrorReason_ERROR_REASON_BUSY:            &sequencer.BusyError{What: "full"},
		dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN: sequencer.ErrOutcomeUnknown,
	} {
		r.leader.fail = fail
		resp, err := r.jobs.SubmitMany(t.Context(), m)
		if err != nil || resp.GetAnswers()[0].GetDetail().GetReason() != want {
			t.Errorf("got %v, %v, want %v", resp, err, want)
		}
	}
}

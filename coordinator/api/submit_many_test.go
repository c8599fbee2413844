package api

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

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

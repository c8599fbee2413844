package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// rerunPart is a request for a rerun of a job, with the specification of that job.
func rerunPart(source, key string) *dtaskv1.JobPart {
	p := berlin("nightly").GetPart()
	p.Header.Namespace, p.IdempotencyKey, p.RerunOf = "etl", key, source
	return p
}

func (r *replica) nextJob() (id fsm.JobID) {
	r.machine.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
	return id
}

// firedBerlin returns a replica with a schedule that has run for two ticks, as the jobs 2 and 3.
func firedBerlin(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	r := setupSchedules(t, change...)
	r.mustSet(t, "submitter", berlin("nightly"))
	r.leader.op(t,
		&fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns},
		&fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_800_000, Civil: 1800, Decision: fsm.TickRuns})
	if next := r.nextJob(); next != 4 {
		t.Fatalf("the next job is %d", next)
	}
	return r
}

func TestARerunHasTheTickOfItsRunAndIsNoneOfTheSchedule(t *testing.T) {
	t.Parallel()
	r := firedBerlin(t)
	var before *fsm.Schedule
	r.machine.Read(func(st *fsm.State, _ uint64) { before = st.Schedule(1) })
	stored, err := r.send(as(t.Context(), "submitter"), rerunPart("3", "k"))
	if err != nil || stored.GetId() != "4" {
		t.Fatal(stored, err)
	}
	want := &dtaskv1.ScheduledRun{Schedule: "nightly", ScheduleId: 1, TickMs: 1_800_000, PreviousMs: 1_200_000, Timezone: "Europe/Berlin", Manual: true, RerunOf: 3}
	if got := r.runOf(t, 4); !proto.Equal(got, want) {
		t.Errorf("got the run %v, want %v", got, want)
	}
	r.machine.Read(func(st *fsm.State, _ uint64) {
		if x := st.Schedule(1); x != before || slices.Contains(st.OpenRuns(x), 4) {
			t.Errorf("the schedule has changed: got %+v, want %+v", x, before)
		}
	})
	r.leader.op(t, &fsm.Fire{Schedule: 1, Version: 1, TickMS: 2_400_000, Civil: 2400, Decision: fsm.TickRuns}) // the next tick

	// A rerun of the rerun has the tick, too.
	if _, err := r.send(as(t.Context(), "submitter"), rerunPart("4", "k2")); err != nil {
		t.Fatal(err)
	}
	if want.RerunOf = 4; !proto.Equal(r.runOf(t, 6), want) {
		t.Errorf("a rerun of the rerun: got %v, want %v", r.runOf(t, 6), want)
	}
}

func TestARerunOfARunByHandHasNoTick(t *testing.T) {
	t.Parallel()
	r := firedBerlin(t)
	r.leader.op(t, &fsm.RunSchedule{Schedule: 1, Key: "by hand", KeyExpires: 1})
	if _, err := r.send(as(t.Context(), "submitter"), rerunPart("4", "k")); err != nil {
		t.Fatal(err)
	}
	want := &dtaskv1.ScheduledRun{Schedule: "nightly", ScheduleId: 1, Timezone: "Europe/Berlin", Manual: true, RerunOf: 4}
	if got := r.runOf(t, 5); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestARunOfTheHistoryCanBeRerun(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, true, Summarize)
	r := firedBerlin(t, change)
	r.leader.op(t, &fsm.CancelJob{Job: 2, Reason: "enough"}, &fsm.Archive{Items: []fsm.JobID{2}})
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.send(as(t.Context(), "submitter"), rerunPart("2", "k")); err != nil {
		t.Fatal(err)
	}
	if got := r.runOf(t, 4); got.GetTickMs() != 1_200_000 || got.GetRerunOf() != 2 {
		t.Errorf("got %v", got)
	}
}

func TestOnlyARunThatTheCallerMayReadIsRerun(t *testing.T) {
	t.Parallel()
	r := firedBerlin(t)
	r.mustSet(t, "ml", berlin("train"))
	r.leader.op(t, &fsm.Fire{Schedule: 2, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns})
	foreign := r.nextJob() - 1
	ordinary := r.submitAs(t, "submitter", "ordinary", "etl", task("a"))
	next := r.nextJob()
	for _, c := range []struct {
		who, source string
		code        codes.Code
		want        string
	}{
		{"submitter", "99", codes.NotFound, "job 99 not found: unknown or expired"},
		{"submitter", formatJobID(foreign), codes.NotFound, "job " + formatJobID(foreign) + " not found: unknown or expired"},
		{"submitter", "x", codes.NotFound, `job "x" not found`},
		{"both", formatJobID(foreign), codes.InvalidArgument, "rerun_of: job " + formatJobID(foreign) + ` is in another namespace: submit its rerun to "ml"`},
		{"submitter", formatJobID(ordinary), codes.InvalidArgument, "rerun_of: job " + formatJobID(ordinary) + " is not the run of a schedule"},
	} {
		_, err := r.send(as(t.Context(), c.who), rerunPart(c.source, c.source))
		if text := fmt.Sprint(err, detailOf(err).GetFaults()); !strings.Contains(text, c.code.String()) || !strings.Contains(text, c.want) {
			t.Errorf("%s reruns %s: got %v, want %v: %s", c.who, c.source, err, c.code, c.want)
		}
	}
	if got := r.nextJob(); got != next {
		t.Errorf("job %d was stored", next)
	}
	r.machine.Read(func(st *fsm.State, _ uint64) {
		if n := len(slices.Collect(st.Uploads())); n != 0 {
			t.Errorf("%d uploads are left", n)
		}
	})
}

// A client that repeats its request must not learn that the job has expired meanwhile.
func TestARepeatedRerunReturnsTheStoredJob(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, Summarize)
	r := firedBerlin(t, change)
	ctx := as(t.Context(), "submitter")
	if _, err := r.send(ctx, rerunPart("2", "k")); err != nil {
		t.Fatal(err)
	}
	r.leader.op(t, &fsm.CancelJob{Job: 2, Reason: "enough"}, &fsm.Archive{Items: []fsm.JobID{2}}) // the history does not have it yet
	if again, err := r.send(ctx, rerunPart("2", "k")); err != nil || !again.GetExisted() || again.GetId() != "4" {
		t.Errorf("got %v, %v", again, err)
	}
	_, err := r.send(ctx, rerunPart("3", "k"))
	wantConflict(t, err, codes.AlreadyExists, "")
}

func TestTheRunOfAnotherJobIsNotShared(t *testing.T) {
	t.Parallel()
	r := firedBerlin(t)
	first, second := rerunPart("2", "k1"), rerunPart("2", "k2")
	first.Job, second.Job = 1, 2
	second.Header, second.RerunOf = nil, ""
	results, err := r.exchange(as(t.Context(), "submitter"), &dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{first, second}})
	if err != nil || results[1].GetStored() == nil || !strings.Contains(strings.Join(results[2].GetDetail().GetFaults(), " "), "header: missing") {
		t.Errorf("got %v, %v", results, err)
	}
}

package client

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

type endStream = grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]

// endsAt is a message of a replica at a log index.
func endsAt(index uint64, ids ...string) *dtaskv1.WaitJobsResponse {
	m := &dtaskv1.WaitJobsResponse{Freshness: &dtaskv1.Freshness{AppliedIndex: index}}
	for _, id := range ids {
		m.Finished = append(m.Finished, &dtaskv1.Job{Id: id, State: dtaskv1.JobState_JOB_STATE_COMPLETED})
	}
	return m
}

// yielded is what a caller received, iteration by iteration.
type told struct {
	Ended, Unknown []string
	Left           int
	Completed      uint64
}

func all(ends Ends) told {
	got := told{Unknown: ends.Unknown, Left: ends.Left, Completed: ends.Completed}
	for _, job := range ends.Jobs {
		got.Ended = append(got.Ended, job.GetId())
	}
	return got
}

func TestEachEndOfManyJobsIsYieldedOnceDespiteFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, c := setup(t, Config{Addrs: []string{"a:1", "b:1"}})
		var asked []*dtaskv1.WaitJobsRequest
		serve := func(r *dtaskv1.WaitJobsRequest, s endStream) error {
			asked = append(asked, r)
			switch len(asked) {
			case 1: // some, then the stream breaks
				first := endsAt(7, "2")
				first.Unknown, first.TasksCompleted = []string{"5"}, 12
				if err := s.Send(first); err != nil {
					return err
				}
				if err := s.Send(endsAt(9)); err != nil {
					return err
				}
				return refusal(codes.Unavailable, "stops", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER})
			case 2: // ends before all were reported
				return s.Send(endsAt(9, "1"))
			}
			return s.Send(endsAt(11, "3", "4"))
		}
		n.serve(t, "a:1", &fake{wait: serve})
		n.serve(t, "b:1", &fake{wait: serve})
		var got []told
		for ends, err := range c.WaitMany(t.Context(), []string{"1", "2", "3", "4", "5"}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, all(ends))
		}
		want := []told{
			{Ended: []string{"2"}, Unknown: []string{"5"}, Left: 3, Completed: 12},
			{Left: 3},
			{Ended: []string{"1"}, Left: 2},
			{Ended: []string{"3", "4"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for i, want := range []*dtaskv1.WaitJobsRequest{
			{Jobs: []string{"1", "2", "3", "4", "5"}, Consistency: dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE},
			{Jobs: []string{"1", "3", "4"}, Consistency: dtaskv1.Consistency_CONSISTENCY_STALE, FromIndex: 9},
			{Jobs: []string{"3", "4"}, Consistency: dtaskv1.Consistency_CONSISTENCY_STALE, FromIndex: 9},
		} {
			if r := asked[i]; !slices.Equal(r.GetJobs(), want.GetJobs()) || r.GetConsistency() != want.GetConsistency() || r.GetFromIndex() != want.GetFromIndex() {
				t.Errorf("call %d: got %v, want %v", i+1, r, want)
			}
		}
	})
}

func TestWaitSubmittedStartsAtTheNewestIndex(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	var asked []*dtaskv1.WaitJobsRequest
	n.serve(t, "a:1", &fake{wait: func(r *dtaskv1.WaitJobsRequest, s endStream) error {
		asked = append(asked, r)
		return s.Send(endsAt(r.GetFromIndex()+1, r.GetJobs()...))
	}})
	for _, jobs := range [][]Submitted{
		{{ID: "1", Index: 4}, {ID: "2", Index: 6}, {ID: "3", Index: 5}},
		{{ID: "1", Index: 4}, {ID: "2", Existed: true}},
	} {
		for _, err := range c.WaitSubmitted(t.Context(), jobs) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, err := range c.WaitOutlines(t.Context(), []Submitted{{ID: "1", Index: 4}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if last := asked[len(asked)-1]; !last.GetOutline() || last.GetFromIndex() != 4 || asked[0].GetOutline() {
		t.Errorf("outlines: got %v", asked)
	}
	if len(asked) != 3 || asked[0].GetFromIndex() != 6 || asked[0].GetConsistency() != dtaskv1.Consistency_CONSISTENCY_STALE ||
		asked[1].GetFromIndex() != 0 || asked[1].GetConsistency() != dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE {
		t.Errorf("got %v", asked)
	}
}

func TestMoreJobsThanOneCallAcceptsAreWaitedForInGroups(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	var sizes []int
	n.serve(t, "a:1", &fake{wait: func(r *dtaskv1.WaitJobsRequest, s endStream) error {
		sizes = append(sizes, len(r.GetJobs()))
		return s.Send(endsAt(1, r.GetJobs()...))
	}})
	ids := make([]string, manyWaited+2)
	for i := range ids {
		ids[i] = strconv.Itoa(i + 1)
	}
	ids[manyWaited] = "1" // a duplicate is reported once
	ended := 0
	for ends, err := range c.WaitMany(t.Context(), ids) {
		if err != nil {
			t.Fatal(err)
		}
		ended += len(ends.Jobs)
	}
	if !slices.Equal(sizes, []int{manyWaited, 1}) || ended != manyWaited+1 {
		t.Errorf("got calls of %v jobs, %d ends", sizes, ended)
	}
}

func TestWaitEndsWhenItIsRefusedOrAbandoned(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{wait: func(r *dtaskv1.WaitJobsRequest, s endStream) error {
		if r.GetJobs()[0] == "bad" {
			return refusal(codes.InvalidArgument, "no good", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID})
		}
		if err := s.Send(endsAt(1, "1")); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	for _, err := range c.WaitMany(t.Context(), []string{"bad"}) {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
	for ends, err := range c.WaitMany(t.Context(), []string{"1", "2"}) {
		if err != nil || len(ends.Jobs) != 1 || ends.Left != 1 {
			t.Errorf("got %+v, %v", ends, err)
		}
		break
	}
	for range c.WaitMany(t.Context(), nil) {
		t.Error("the error names no job")
	}
}

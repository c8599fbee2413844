package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// runningJobs gives a leader n running jobs with the numbers 1 to n and no others.
func (f *fakeLeader) runningJobs(n int) {
	clear(f.jobs)
	for i := range n {
		id := strconv.Itoa(i + 1)
		f.jobs[id] = &fakeJob{job: &dtaskv1.Job{Id: id, Name: "many", State: dtaskv1.JobState_JOB_STATE_RUNNING}}
	}
}

func TestJobsAreChangedConcurrentlyAndReportedInOrder(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	leader.runningJobs(1000)
	a, stdout, _ := setup(t, nil)
	s := &jobSelector{usual: activeJobStates, filtered: true, confirmation: confirmation{yes: true}}
	var calls, running, most atomic.Int64
	change := &jobChange{verb: "cancel", gerund: "cancelling", past: "cancelled", apply: func(context.Context, *client.Client, *target, int, int) (changed, error) {
		calls.Add(1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		return changed{}, nil
	}}
	a.format = outputTable
	r, err := a.newChangeRun(t.Context(), c, s, change, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if len(got) != 1001 || calls.Load() != 1000 || got[0] != "job 1000 (many) cancelled" || got[999] != "job 1 (many) cancelled" || got[1000] != "1,000 jobs cancelled" {
		t.Errorf("got %d calls and %d lines, the last %q", calls.Load(), len(got), got[len(got)-1])
	}
	if most.Load() > maxChanging {
		t.Errorf("%d concurrent calls; want at most %d", most.Load(), maxChanging)
	}
}

func TestAnErrorThatConcernsAllJobsStopsTheChange(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	leader.runningJobs(1000)
	a, stdout, _ := setup(t, nil)
	s := &jobSelector{usual: activeJobStates, filtered: true, confirmation: confirmation{yes: true}}
	var calls atomic.Int64
	change := &jobChange{verb: "cancel", gerund: "cancelling", past: "cancelled", apply: func(_ context.Context, _ *client.Client, _ *target, n, _ int) (changed, error) {
		calls.Add(1)
		if n == 2*maxChanging {
			return changed{}, &client.Error{Kind: client.ErrBusy, Message: "full"}
		}
		return changed{}, nil
	}}
	a.format = outputJSON
	r, err := a.newChangeRun(t.Context(), c, s, change, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.run(t.Context())
	if want := fmt.Sprintf("%d of 1000 cancelled: full", 3*maxChanging-1); !errors.Is(err, client.ErrBusy) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if calls.Load() != 3*maxChanging || !strings.HasSuffix(stdout.String(), "\n  ]\n}\n") {
		t.Errorf("got %d calls, and a document that ends with %q", calls.Load(), stdout.String()[max(stdout.Len()-20, 0):])
	}
}

func TestAQuestionNamesSomeOfTheJobs(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	leader.runningJobs(12)
	a, _, stderr := setup(t, nil)
	s := &jobSelector{usual: activeJobStates, filtered: true}
	targets, err := s.targets(t.Context(), a, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.describe(&a.output, targets)
	lines := strings.Split(strings.TrimRight(stderr.String(), "\n"), "\n")
	if len(lines) != maxConfirmedJobs+1 || lines[0] != "  job 12 (many): running" || !slices.Contains(lines, "  … and 2 more jobs") {
		t.Errorf("got %q", lines)
	}
}

func TestFiltersAloneDecideWhichJobsAreChanged(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	leader.runningJobs(3)
	leader.jobs["2"].job.State = dtaskv1.JobState_JOB_STATE_FAILED
	a, _, _ := setup(t, nil)
	s := &jobSelector{usual: activeJobStates, filtered: true}
	targets, err := s.targets(t.Context(), a, c, nil)
	if err != nil || len(targets) != 2 || targets[0].job != "3" || targets[1].job != "1" {
		t.Errorf("got %v, %v; want jobs 3 and 1", targets, err)
	}
}

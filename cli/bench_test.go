package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/document"
)

// benchSetup serves a leader and returns an app that uses it.
func benchSetup(t *testing.T, leader *fakeLeader) (a *app, stdout, stderr interface{ String() string }) {
	t.Helper()
	addr, done, err := leader.serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	a, out, errs := setup(t, map[string]string{"DTASK_ADDR": addr})
	return a, out, errs
}

func TestAnInterruptedBenchCancelsOnlyItsJobs(t *testing.T) {
	t.Parallel()
	leader := newFakeLeader()
	leader.stuck, leader.allStuck = 3, make(chan struct{})
	a, _, stderr := benchSetup(t, leader)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1) // one exit code
	go func() { code <- run(ctx, []string{"bench", "--tasks", "6", "--jobs", "3", "--type", "stuck"}, a) }()
	<-leader.allStuck
	interrupt()
	if got := <-code; got != exitInterrupted {
		t.Errorf("got exit code %d, want %d", got, exitInterrupted)
	}
	if got := stderr.String(); !strings.Contains(got, "interrupted\nhint: cancelled 3 jobs of this run\n") {
		t.Errorf("got %q", got)
	}
	slices.Sort(leader.cancelled)
	if want := []string{"101", "102", "103"}; !slices.Equal(leader.cancelled, want) {
		t.Errorf("cancelled %v, want %v", leader.cancelled, want)
	}
}

func TestABenchWithoutWorkersFails(t *testing.T) {
	t.Parallel()
	leader := newFakeLeader()
	leader.noWorker = true
	a, _, stderr := benchSetup(t, leader)
	if got := run(t.Context(), []string{"bench", "--tasks", "1"}, a); got != exitRefused {
		t.Errorf("got exit code %d, want %d", got, exitRefused)
	}
	if got := stderr.String(); !strings.Contains(got, "no worker is up") || !strings.Contains(got, "hint: start one with dtask-worker") {
		t.Errorf("got %q", got)
	}
	if leader.runs > 0 {
		t.Error("it submitted a job")
	}
}

func TestABenchReportsTaskLatency(t *testing.T) {
	t.Parallel()
	a, stdout, _ := benchSetup(t, newFakeLeader())
	if got := run(t.Context(), []string{"bench", "--tasks", "10", "--jobs", "2", "-o", "json"}, a); got != exitOK {
		t.Fatalf("got exit code %d", got)
	}
	var r document.Bench
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.ReadyToRunning == nil || *r.ReadyToRunning != (document.Distribution{P50: 3, P99: 3, Max: 3}) {
		t.Errorf("ready to running: got %+v", r.ReadyToRunning)
	}
	if r.EndToEnd == nil || *r.EndToEnd != (document.Distribution{P50: 5, P99: 5, Max: 5}) || r.Sampled != 10 {
		t.Errorf("end to end: got %+v of %d", r.EndToEnd, r.Sampled)
	}
	if r.Submit == nil || r.Submit.Max < r.Submit.P50 || r.Submit.P50 <= 0 {
		t.Errorf("submission: got %+v", r.Submit)
	}
}

func TestARateAndADurationDetermineTheNumberOfJobs(t *testing.T) {
	t.Parallel()
	a, stdout, _ := benchSetup(t, newFakeLeader())
	if got := run(t.Context(), []string{"bench", "--rate", "1000", "--tasks-per-job", "10", "--duration", "50ms", "-o", "json"}, a); got != exitOK {
		t.Fatalf("got exit code %d", got)
	}
	var r document.Bench
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.Jobs != 5 || r.Tasks != 50 {
		t.Errorf("got %d jobs with %d tasks, want 5 with 50", r.Jobs, r.Tasks)
	}
}

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

func TestTargetsAreReservedAllOrNone(t *testing.T) {
	t.Parallel()
	w := &World{shared: &shared{taken: make(map[string]string)}}
	release, err := w.Take("one", "n1", "n2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Take("other", "n3", "n2"); !errors.Is(err, ErrBusy) {
		t.Errorf("reserving a reserved target: got %v, want ErrBusy", err)
	}
	if w.isTaken("n3") {
		t.Error("n3 was reserved although n2 was not available")
	}
	release()
	release() // harmless
	if _, err := w.Take("other", "n3", "n2"); err != nil {
		t.Error(err)
	}
}

// recorded is a fault that holds and records its calls.
func recorded(kind string, err error) fault {
	return fault{kind, "test", func(ctx context.Context, w *World, hold time.Duration) error {
		pauseOr(ctx, hold)
		_ = w.Random.Uint64()
		return err
	}}
}

func runPlan(t *testing.T, seed uint64, alive error, faults ...Fault) (out *Outcome, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &World{shared: &shared{taken: make(map[string]string)}, Random: rand.New(rand.NewPCG(1, 1)), Log: t.Logf}
		out, err = Run(t.Context(), w, Options{
			Seed: seed, Faults: faults, Phases: 3, Safety: 40 * time.Second, Pace: 4 * time.Second, Most: 15 * time.Second,
			Alive: func(context.Context) error { return alive },
		})
	})
	return out, err
}

func TestTheSeedDeterminesThePlanAndEachFaultGetsATurn(t *testing.T) {
	t.Parallel()
	faults := []Fault{recorded("F1", nil), recorded("F2", nil), recorded("F3", nil), recorded("F4", ErrCannot)}
	show := func(seed uint64) []Step {
		out, err := runPlan(t, seed, nil, faults...)
		if err != nil {
			t.Fatal(err)
		}
		if kinds := out.Kinds(); !slices.Equal(kinds, []string{"F1", "F2", "F3"}) {
			t.Errorf("fired: %v", kinds)
		}
		if _, ok := out.Cannot["F4 test"]; !ok {
			t.Error("F4 is missing among the faults that could not be applied")
		}
		slices.SortFunc(out.Steps, func(a, b Step) int {
			return slices.Compare([]int64{int64(a.At), int64(a.Hold)}, []int64{int64(b.At), int64(b.Hold)})
		})
		return out.Steps
	}
	one, again, other := show(1), show(1), show(2)
	if !slices.Equal(one, again) {
		t.Error("got two plans for one seed")
	}
	if slices.Equal(one, other) {
		t.Error("got one plan for two seeds")
	}
	for _, s := range one {
		if s.Hold < shortest || s.Hold > 15*time.Second {
			t.Errorf("got hold %v", s.Hold)
		}
	}
}

func TestADeckRepeatsWeightedFaults(t *testing.T) {
	t.Parallel()
	p := &plan{o: Options{Faults: []Fault{recorded("F1", nil), recorded("F2", nil), recorded("F3", nil)}, Often: map[string]int{"F2": 4}}, random: rand.New(rand.NewPCG(1, 1))}
	drawn := make(map[string]int)
	for range 2 * (1 + 4 + 1) {
		drawn[p.draw().Kind()]++
	}
	if drawn["F1"] != 2 || drawn["F2"] != 8 || drawn["F3"] != 2 {
		t.Errorf("two decks: got %v", drawn)
	}
}

func TestAPlanFailsIfWorkDoesNotResume(t *testing.T) {
	t.Parallel()
	stuck := errors.New("stuck")
	if _, err := runPlan(t, 1, stuck, recorded("F1", nil)); !errors.Is(err, stuck) {
		t.Errorf("got %v", err)
	}
}

func TestAPlanFailsIfAFaultReturnsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, err := runPlan(t, 1, nil, recorded("F1", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestKindsMatchTheCatalog(t *testing.T) {
	t.Parallel()
	names, kinds := make(map[string]bool), make(map[string]bool)
	for _, f := range All() {
		kinds[f.Kind()] = true
		if names[f.Name()] {
			t.Errorf("duplicate name %s", f.Name())
		}
		names[f.Name()] = true
		if len(f.Kind()) < 2 || f.Kind()[0] != 'F' {
			t.Errorf("%s: invalid kind %q", f.Name(), f.Kind())
		}
	}
	const first, last, unused = 1, 62, 57 // as docs/testing.md says
	for n := first; n <= last; n++ {
		if kind := fmt.Sprintf("F%d", n); kinds[kind] == (n == unused) {
			t.Errorf("%s: got %v", kind, kinds[kind])
		}
	}
	if len(kinds) != last-first {
		t.Errorf("got %d kinds, want %d", len(kinds), last-first)
	}
}

func TestAFaultThatStopsNoProcessIsNotCounted(t *testing.T) {
	t.Parallel()
	c, err := cluster.New(t.Context(), cluster.Config{Dir: t.TempDir(), Programs: cluster.Programs{Dir: "unused"}, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := &World{Cluster: c, shared: &shared{taken: make(map[string]string)}, Random: rand.New(rand.NewPCG(1, 1)), Log: t.Logf}
	for name, apply := range map[string]func(context.Context, *World, time.Duration) error{"all-sigstop": stopped(everybody, time.Second), "worker-sigstop": zombie} {
		if err := apply(t.Context(), w, time.Minute); !errors.Is(err, ErrCannot) {
			t.Errorf("%s without processes: got %v, want ErrCannot", name, err)
		}
	}
	if w.isTaken("n1") || w.isTaken("w1") {
		t.Error("processes are still taken")
	}
}

// The nurse waited for the exit of a process that a fault had restarted, and kept it taken.
func TestTheNurseLeavesAProcessThatAFaultHasRestarted(t *testing.T) {
	t.Parallel()
	w := &World{shared: &shared{taken: make(map[string]string), tally: Tally{Ends: make(map[string]int)}}}
	p := cluster.NewProcess("n1", t.TempDir(), "/bin/sleep", []string{"1000"}, nil)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1) // one sends
	go func() { done <- w.nurse(t.Context(), p) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		_ = p.Kill()
		t.Fatal("the nurse waits for a process that runs")
	}
	if !p.Running() || len(w.Tally().Ends) > 0 {
		t.Errorf("running: %v; exits: %v", p.Running(), w.Tally().Ends)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := w.nurse(t.Context(), p); err != nil || !p.Running() || w.Tally().Ends["n1 exit 137"] != 1 || w.isTaken("n1") {
		t.Errorf("after its exit: got %v, running: %v; exits: %v", err, p.Running(), w.Tally().Ends)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func TestAReplicaHasResumedByItsOwnMetrics(t *testing.T) {
	answers := []string{
		"dtask_raft_leading 0\ndtask_raft_applied_index 0\n",   // it has just started
		"dtask_raft_leading 0\ndtask_raft_applied_index 110\n", // in flight when it was killed, perhaps
		"dtask_raft_leading 1\ndtask_raft_applied_index 999\n", // no replica can have acknowledged that
		"dtask_raft_leading 0\ndtask_raft_applied_index 999\n",
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(answers[min(asked-2, len(answers)-1)]))
	}))
	defer server.Close()
	n := &cluster.Coordinator{Process: new(cluster.Process), HTTP: strings.TrimPrefix(server.URL, "http://")}
	if err := goesOn(t.Context(), n, 10); err != nil {
		t.Fatal(err)
	}
	if asked != 5 {
		t.Errorf("got %d requests, want 5", asked)
	}
}

func TestBitsAreFlippedInFinishedSnapshotsOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1-10-100/state.bin": "state", "1-10-100/meta.json": "{}", "1-20-200/state.bin": "",
		"2-30-300.tmp/meta.json": "", "2-30-300.tmp/state.bin": "sta",
	} {
		path := filepath.Join(dir, "snapshots", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"meta.json", "state.bin"}
	var got []string
	for _, path := range snapshotFiles(dir) {
		if filepath.Base(filepath.Dir(path)) != "1-10-100" {
			t.Errorf("got %s, want only files of finished snapshots", path)
		}
		got = append(got, filepath.Base(path))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

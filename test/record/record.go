// Package record keeps the figures that the proof suites accumulate over many runs
// and commits: one line of JSON per run, in one append-only file. Rare faults are
// found by the sum of runs, not by the last one.
package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"testing"
	"time"
)

// Env names the environment variable with the path of the record. Suites append to it
// if it is set, and only print otherwise.
const Env = "DTASK_RECORD"

// Run is what one run of a suite did. Fields that don't apply are zero.
type Run struct {
	Suite  string    `json:"suite"`          // simulate, cluster, chaos, ticks, powercut, bitflip, mutants, fuzz, soak
	Commit string    `json:"commit"`         // short hash; with a "+" at the end if there were uncommitted changes
	Core   string    `json:"core,omitempty"` // CoreDigest of the code that ran; older lines have none
	At     time.Time `json:"at"`             // end of the run
	Seed   uint64    `json:"seed,omitempty"` // the first one if there are several
	// Seconds of wall time.
	Seconds float64 `json:"seconds"`

	Seeds          int     `json:"seeds,omitempty"`           // simulated histories
	Events         int64   `json:"events,omitempty"`          // steps of the simulation
	VirtualSeconds float64 `json:"virtual_seconds,omitempty"` // of a whole cluster of three
	// ProductSeconds is the part of VirtualSeconds in which the cluster ran at the
	// pace of the product. PacedSeconds is the whole, divided by the pace of each
	// cluster.
	ProductSeconds float64        `json:"product_seconds,omitempty"`
	PacedSeconds   float64        `json:"paced_seconds,omitempty"`
	LeaderLosses   int            `json:"leader_losses,omitempty"`  // virtual
	LeaderKills    int            `json:"leader_kills,omitempty"`   // real processes, SIGKILL
	WorkerKills    int            `json:"worker_kills,omitempty"`   // real processes, SIGKILL
	Tasks          int            `json:"tasks,omitempty"`          // acknowledged and checked
	Faults         map[string]int `json:"faults,omitempty"`         // kind (F1 … F69) → times fired
	Handovers      int            `json:"handovers,omitempty"`      // of limits, from one execution to the next
	Ticks          int            `json:"ticks,omitempty"`          // of a schedule, checked while leaders were killed
	Unacknowledged int            `json:"unacknowledged,omitempty"` // leaders killed with a fire in their log that was not acknowledged
	PowerCuts      int            `json:"power_cuts,omitempty"`
	BitFlips       int            `json:"bit_flips,omitempty"`
	// LogStore is the log store of all coordinators of the run, or "mixed". Lines without
	// Core name only "wal".
	LogStore    string         `json:"log_store,omitempty"`
	Mutants     []string       `json:"mutants,omitempty"`      // planted bugs that were caught
	FuzzSeconds map[string]int `json:"fuzz_seconds,omitempty"` // target → seconds

	// Failed names the test that failed, and how the run ended if that is all that is
	// known. Its figures are those up to the failure and are not added up, except for what
	// must be zero. Outcome is added by hand: what was wrong, and which commit mended it.
	Failed  string `json:"failed,omitempty"`
	Outcome string `json:"outcome,omitempty"`

	// What must be zero.
	Lost       int `json:"lost"`       // acknowledged and missing
	Duplicated int `json:"duplicated"` // accepted twice
	Diverged   int `json:"diverged"`   // replicas that differed and continued
}

// AtEnd calls AppendIfAsked when the test ends, with what the run has become until
// then, and whether the test failed. Seconds are counted from now on if they are zero.
func AtEnd(tb testing.TB, r *Run) {
	tb.Helper()
	began := time.Now()
	tb.Cleanup(func() {
		if tb.Skipped() {
			return
		}
		if tb.Failed() {
			r.Failed = tb.Name()
		}
		if r.Seconds == 0 {
			r.Seconds = time.Since(began).Seconds()
		}
		if err := AppendIfAsked(context.WithoutCancel(tb.Context()), r); err != nil {
			tb.Error(err)
		}
	})
}

// AppendIfAsked appends a run to the record that Env names. Without Env it does
// nothing. Commit, Core and At are filled in if they are empty.
func AppendIfAsked(ctx context.Context, r *Run) error {
	path := os.Getenv(Env)
	if path == "" {
		return nil
	}
	if err := Append(ctx, path, r); err != nil {
		return err
	}
	if started := os.Getenv(StartedEnv); started != "" && r.Failed != "" {
		return removeIfPresent(started)
	}
	return nil
}

// Append adds a run to the record at path, which is created if missing. The line is
// written with one call, so that several processes may append to one file.
func Append(ctx context.Context, path string, r *Run) error {
	line := *r
	if err := fill(ctx, &line); err != nil {
		return err
	}
	b, err := json.Marshal(&line)
	if err != nil {
		return fmt.Errorf("encoding a run: %w", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // a file that is committed
	if err != nil {
		return fmt.Errorf("opening the record: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// fill fills in the commit, the core and the time of a run if they are empty.
func fill(ctx context.Context, r *Run) error {
	if r.Commit == "" {
		r.Commit = Commit(ctx)
	}
	if r.Core == "" {
		root, err := Root()
		if err == nil {
			r.Core, err = CoreDigest(root)
		}
		if err != nil {
			return err
		}
	}
	if r.At.IsZero() {
		r.At = time.Now().UTC().Truncate(time.Second)
	}
	return nil
}

// Read returns all runs of a record, oldest first, and no runs if the file does not
// exist.
func Read(path string) ([]Run, error) {
	f, err := os.Open(path) //nolint:gosec // the caller's own file
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the record: %w", err)
	}
	defer func() { _ = f.Close() }()
	var runs []Run
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Run
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(runs)+1, err)
		}
		runs = append(runs, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return runs, nil
}

// Total sums up runs. Each planted bug is counted once. Of runs that failed it counts
// only what must be zero.
func Total(runs []Run) Run {
	sum := Run{Faults: map[string]int{}, FuzzSeconds: map[string]int{}}
	caught := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		sum.Lost += r.Lost
		sum.Duplicated += r.Duplicated
		sum.Diverged += r.Diverged
		if r.Failed != "" {
			continue
		}
		sum.Seconds += r.Seconds
		sum.Seeds += r.Seeds
		sum.Events += r.Events
		sum.VirtualSeconds += r.VirtualSeconds
		sum.ProductSeconds += r.ProductSeconds
		sum.PacedSeconds += r.PacedSeconds
		sum.LeaderLosses += r.LeaderLosses
		sum.LeaderKills += r.LeaderKills
		sum.WorkerKills += r.WorkerKills
		sum.Tasks += r.Tasks
		sum.Handovers += r.Handovers
		sum.Ticks += r.Ticks
		sum.Unacknowledged += r.Unacknowledged
		sum.PowerCuts += r.PowerCuts
		sum.BitFlips += r.BitFlips
		for kind, n := range r.Faults {
			sum.Faults[kind] += n
		}
		for target, n := range r.FuzzSeconds {
			sum.FuzzSeconds[target] += n
		}
		for _, m := range r.Mutants {
			caught[m] = true
		}
	}
	for m := range maps.Keys(caught) {
		sum.Mutants = append(sum.Mutants, m)
	}
	return sum
}

// Of returns the runs for which a condition holds.
func Of(runs []Run, holds func(*Run) bool) (of []Run) {
	for i := range runs {
		if holds(&runs[i]) {
			of = append(of, runs[i])
		}
	}
	return of
}

// Next returns the first seed that no run of a suite has used.
func Next(runs []Run, suite string) uint64 {
	next := uint64(1)
	for i := range runs {
		if r := &runs[i]; r.Suite == suite {
			next = max(next, r.Seed+uint64(max(r.Seeds, 1))) //nolint:gosec // not negative
		}
	}
	return next
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/sequencer"
)

// The steps of a term that can be made to fail. The names of duties are their
// own (leader.Duty.Name).
const (
	stepBarrier    = "barrier"     // applying what was committed before the term
	stepSequencer  = "sequencer"   // the duty that assigns tasks
	stepFirstEntry = "first-entry" // committing the first entry of the term
	stepMembership = "membership"  // the duty that records the members
	stepTransfer   = "transfer"    // transferring leadership when the duties fail
)

// How a step fails.
const (
	howError = "error" // it returns an error
	howHang  = "hang"  // it returns only after its context is cancelled
	howStick = "stick" // it never returns
)

// errFault is the error of a step that a test makes fail.
var errFault = errors.New("injected failure")

// stepFaults are the steps that fail, and how often each has failed. Safe for
// concurrent use.
type stepFaults struct {
	mu    sync.Mutex // guards the fields below
	plan  map[string]plannedFault
	fired map[string]int
}

type plannedFault struct {
	how  string
	left int // failures that remain
}

func newStepFaults() *stepFaults {
	return &stepFaults{plan: make(map[string]plannedFault), fired: make(map[string]int)}
}

// set makes a step fail the next times; 0 cancels that.
func (f *stepFaults) set(step, how string, times int) error {
	steps := []string{stepBarrier, stepSequencer, stepFirstEntry, stepMembership, stepTransfer}
	if how == "" {
		how = howError
	}
	switch hows := []string{howError, howHang, howStick}; {
	case !slices.Contains(steps, step):
		return fmt.Errorf("step: invalid %q: must be one of %s", step, strings.Join(steps, ", "))
	case !slices.Contains(hows, how):
		return fmt.Errorf("how: invalid %q: must be one of %s", how, strings.Join(hows, ", "))
	case times < 0:
		return errors.New("times: must be 0 or more")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan[step] = plannedFault{how: how, left: times}
	return nil
}

// counts returns how often each step has failed.
func (f *stepFaults) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.fired)
}

// take consumes one failure of a step and returns its kind, "" if none is planned.
func (f *stepFaults) take(step string) (how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.plan[step]
	if p.left == 0 {
		return ""
	}
	p.left--
	f.plan[step] = p
	f.fired[step]++
	return p.how
}

// at fails if a failure of the step is planned.
func (f *stepFaults) at(ctx context.Context, step string) error {
	return fail(ctx, step, f.take(step))
}

func fail(ctx context.Context, step, how string) error {
	switch how {
	case "":
		return nil
	case howHang:
		<-ctx.Done()
	case howStick:
		select {} // the process must exit without it
	}
	return fmt.Errorf("%s: %w", step, errFault)
}

// raft makes the barrier and the transfer fail.
func (f *stepFaults) raft(r leader.Raft) leader.Raft { return faultyRaft{r, f} }

type faultyRaft struct {
	leader.Raft
	steps *stepFaults
}

// Barrier implements leader.Raft.
func (r faultyRaft) Barrier(ctx context.Context) (term uint64, err error) {
	if err := r.steps.at(ctx, stepBarrier); err != nil {
		return 0, err
	}
	return r.Raft.Barrier(ctx)
}

// Transfer implements leader.Raft.
func (r faultyRaft) Transfer(ctx context.Context) error {
	if err := r.steps.at(ctx, stepTransfer); err != nil {
		return err
	}
	return r.Raft.Transfer(ctx)
}

// duty makes a duty fail when a term begins.
func (f *stepFaults) duty(d leader.Duty) leader.Duty { return faultyDuty{d, f} }

type faultyDuty struct {
	leader.Duty
	steps *stepFaults
}

// Run implements leader.Duty.
func (d faultyDuty) Run(ctx context.Context, term uint64) error {
	if err := d.steps.at(ctx, d.Name()); err != nil {
		return err
	}
	return d.Duty.Run(ctx, term)
}

// log makes the first entry of a term fail; ctx ends with the term.
func (f *stepFaults) log(ctx context.Context, log sequencer.Log) sequencer.Log {
	how := f.take(stepFirstEntry)
	if how == "" {
		return log
	}
	return &faultyLog{Log: log, fail: func() error { return fail(ctx, stepFirstEntry, how) }}
}

type faultyLog struct {
	sequencer.Log
	fail func() error
	once sync.Once
}

// Propose implements sequencer.Log.
func (f *faultyLog) Propose(data []byte) (p sequencer.Proposal) {
	f.once.Do(func() { p = failedProposal(f.fail) })
	if p == nil {
		p = f.Log.Propose(data)
	}
	return p
}

type failedProposal func() error

// Wait implements sequencer.Proposal.
func (p failedProposal) Wait() (response any, index uint64, err error) { return nil, 0, p() }

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
)

// The steps of taking leadership up, and of getting rid of it, that can be made to
// fail.
const (
	stepBarrier    = "barrier"     // applying what was committed before
	stepSequencer  = "sequencer"   // making the sequencer
	stepFirstEntry = "first-entry" // committing the first entry of the term
	stepRegistrar  = "registrar"   // recording the members
	stepTransfer   = "transfer"    // handing leadership over when it cannot be taken up
)

// How a step fails.
const (
	howError = "error" // it returns an error
	howHang  = "hang"  // it does not return before it is told to end
	howStick = "stick" // it does not return at all
)

// errTestFault is why a step fails that was told to.
var errTestFault = errors.New("made to fail by a test")

// stepFaults are the steps that are to fail, and how often each has. Its methods may
// be called on nil, which is what a replica without test hooks has, and are safe
// for concurrent use.
type stepFaults struct {
	mu    sync.Mutex // guards what follows
	plan  map[string]plannedFault
	fired map[string]int
}

type plannedFault struct {
	how  string
	left int // how often still
}

func newStepFaults() *stepFaults {
	return &stepFaults{plan: make(map[string]plannedFault), fired: make(map[string]int)}
}

// set lets a step fail the next times; 0 takes that back.
func (f *stepFaults) set(step, how string, times int) error {
	steps := []string{stepBarrier, stepSequencer, stepFirstEntry, stepRegistrar, stepTransfer}
	if how == "" {
		how = howError
	}
	switch hows := []string{howError, howHang, howStick}; {
	case !slices.Contains(steps, step):
		return fmt.Errorf("step: %q is none of %s", step, strings.Join(steps, ", "))
	case !slices.Contains(hows, how):
		return fmt.Errorf("how: %q is none of %s", how, strings.Join(hows, ", "))
	case times < 0:
		return errors.New("times: must be 0 or more")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan[step] = plannedFault{how: how, left: times}
	return nil
}

// counts gives how often each step has failed.
func (f *stepFaults) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.fired)
}

// take says how a step is to fail now; "" if it is not.
func (f *stepFaults) take(step string) (how string) {
	if f == nil {
		return ""
	}
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

// at fails if a step is to fail now.
func (f *stepFaults) at(ctx context.Context, step string) error {
	return failSo(ctx, step, f.take(step))
}

func failSo(ctx context.Context, step, how string) error {
	switch how {
	case "":
		return nil
	case howHang:
		<-ctx.Done()
	case howStick:
		select {} // for good: the process must end without it
	}
	return fmt.Errorf("%s: %w", step, errTestFault)
}

// failingRaft is the node as package leader sees it, with steps that may fail.
type failingRaft struct {
	*raftnode.Node
	faults *stepFaults
}

var _ leader.Raft = failingRaft{}

// Barrier implements leader.Raft.
func (f failingRaft) Barrier(ctx context.Context) (term uint64, err error) {
	if err := f.faults.at(ctx, stepBarrier); err != nil {
		return 0, err
	}
	return f.Node.Barrier(ctx)
}

// Transfer implements leader.Raft.
func (f failingRaft) Transfer(ctx context.Context) error {
	if err := f.faults.at(ctx, stepTransfer); err != nil {
		return err
	}
	return f.Node.Transfer(ctx)
}

// firstFails is the log of a term whose first entry does not get anywhere.
type firstFails struct {
	sequencer.Log
	fail func() error
	once sync.Once
}

// Propose implements sequencer.Log.
func (f *firstFails) Propose(data []byte) (p sequencer.Proposal) {
	f.once.Do(func() { p = failedProposal(f.fail) })
	if p == nil {
		p = f.Log.Propose(data)
	}
	return p
}

type failedProposal func() error

// Wait implements sequencer.Proposal.
func (p failedProposal) Wait() (response any, index uint64, err error) { return nil, 0, p() }

// entryLog is where a term's entries go.
func (r *replica) entryLog(ctx context.Context) sequencer.Log {
	log := proposer{r.node.Load()}
	how := r.faults().take(stepFirstEntry)
	if how == "" {
		return log
	}
	return &firstFails{Log: log, fail: func() error { return failSo(ctx, stepFirstEntry, how) }}
}

// faults are nil without test hooks.
func (r *replica) faults() *stepFaults {
	if r.hooks == nil {
		return nil
	}
	return r.hooks.faults
}

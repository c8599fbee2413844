package sequencer

import (
	"errors"
	"fmt"

	"github.com/dtask/dtask/fsm"
)

// pipeline proposes batches and sends their effects after commit, in order. The
// sequencer's goroutine calls propose; the committer's runs commit.
type pipeline struct {
	cfg     *Config
	slots   chan struct{} // a token for each entry in flight; its size bounds them
	commits chan inFlight
	failed  chan struct{} // closed by the committer after the first failure
	failure error         // set before failed is closed
}

// inFlight is a proposed batch. proposal is nil if the batch has no entry and
// only waits for those before it.
type inFlight struct {
	batch    *batch
	proposal Proposal
	data     []byte
	digest   uint64
}

func newPipeline(cfg *Config) *pipeline {
	return &pipeline{
		cfg:   cfg,
		slots: make(chan struct{}, cfg.InFlight),
		// Batches without an entry take no slot; the committer receives them as
		// fast as those before them are committed.
		commits: make(chan inFlight, cfg.InFlight+16),
		failed:  make(chan struct{}),
	}
}

// propose proposes a batch, for which the caller has taken a slot.
func (p *pipeline) propose(b *batch) {
	items := b.entry.Items()
	entry, digest, ok := b.entry.Finish()
	if !ok {
		<-p.slots
		if len(b.out) > 0 {
			p.commits <- inFlight{batch: b}
		}
		return
	}
	data := fsm.Encode(make([]byte, 0, b.entry.Size()), entry)
	p.cfg.Machine.CacheDecoded(data, entry)
	t := p.cfg.Totals
	t.Entries.Add(1)
	t.Operations.Add(uint64(items)) //nolint:gosec // a count
	t.Bytes.Add(uint64(len(data)))
	p.commits <- inFlight{batch: b, proposal: p.cfg.Log.Propose(data), data: data, digest: digest}
}

// commit settles entries in order until commits is closed. Every caller that
// waits for one of them then has its answer.
func (p *pipeline) commit() {
	var failure error
	for f := range p.commits {
		failure = p.settle(f, failure)
	}
}

// settle waits for one entry and sends its effects. failure is the answer for
// all entries after the first that failed, or nil; settle returns it for the
// next call.
func (p *pipeline) settle(f inFlight, failure error) error {
	if failure != nil {
		f.batch.fail(failure)
		p.freeSlot(f)
		if f.proposal != nil {
			p.cfg.Machine.DropDecoded(f.data)
		}
		return failure
	}
	index, err := p.await(f)
	p.freeSlot(f)
	if err == nil {
		f.batch.deliver(index)
		return nil
	}
	failure = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	answer := failure
	if p.cfg.Definite(err) {
		answer = ErrTermEnded
	}
	f.batch.fail(answer)
	p.failure = err
	close(p.failed)
	return failure
}

func (p *pipeline) freeSlot(f inFlight) {
	if f.proposal != nil {
		<-p.slots
	}
}

// await waits for one entry and compares its effect with the view's.
func (p *pipeline) await(f inFlight) (uint64, error) {
	if f.proposal == nil {
		return 0, nil
	}
	response, index, err := f.proposal.Wait()
	if err != nil {
		p.cfg.Machine.DropDecoded(f.data)
		return 0, err
	}
	applied, ok := response.(fsm.Applied)
	if !ok {
		err, _ := response.(error)
		return 0, errors.Join(errors.New("sequencer: state machine did not apply the entry"), err)
	}
	if applied.Digest != f.digest || applied.Rejected != fsm.Accepted {
		err := fmt.Errorf("sequencer: state and view differ at log entry %d: digest %x, want %x; %v",
			index, applied.Digest, f.digest, applied.Rejected)
		p.cfg.Halt(err)
		return 0, err
	}
	return index, nil
}

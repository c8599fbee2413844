package sequencer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Sequencer is one term of leadership: the only proposer. Its exported methods
// are safe for concurrent use; what they ask for is done by the goroutine of
// Run, in which all other methods run.
type Sequencer struct {
	cfg    Config
	origin time.Time // of moments, a little before the first
	inbox  *inbox
	left   backlog

	view     *fsm.State // the replicated state with all entries on their way applied
	sched    *scheduler.Scheduler
	workers  map[fsm.WorkerID]*worker
	jobs     map[fsm.JobID]*jobInfo
	like     likeness
	timers   timers
	orphans  map[fsm.AttemptRef]orphan // at-most-once attempts of lost workers
	uploads  map[string]*submission    // by key, those that take another entry
	reuses   []fsm.TaskRef             // pure tasks whose result was known when they became ready
	cleanUps map[fsm.TaskRef]time.Time // clean-up tasks that are held back, and until when at most
	ended    ended
	tasks    uint64 // of all jobs held

	readySince map[fsm.TaskRef]time.Time // sampled

	sweptAt   time.Time
	budgetAt  time.Time // when the log last said that checkpoints have no room
	stealAt   time.Time // before then no worker is asked to give anything back
	stealGap  time.Duration
	expiredAt time.Time // when history was last told what is too old
	silentAt  time.Time // before then no worker was silent for too long
	doubtAt   time.Time // when most workers last fell silent together
	keyShard  int
	rest      resting
	stale     uint64 // at most so many entries of the scheduler are of tasks that have ended
	more      bool   // the last batch was full

	batches uint64        // begun
	pipe    chan struct{} // a token for each entry on its way
	commits chan inFlight
	failed  chan struct{} // closed when an entry failed
	failure error         // set before failed is closed

	madeAt  time.Time
	heldOff atomic.Int64 // ns since madeAt, until when workers were told to come back; 0: none was

	watch     observations
	assignOff atomic.Bool
	ready     chan struct{} // closed when the first entry of the term is committed
}

// inFlight is a batch whose entry is on its way; proposal is nil if it had no
// operations and only has to wait for those before it.
type inFlight struct {
	batch    *batch
	proposal Proposal
	data     []byte
	digest   uint64
}

// New makes the sequencer of a term. Its view is a fork of the machine's state,
// which must have applied everything that was committed before the term.
func New(cfg Config) (*Sequencer, error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sequencer{
		cfg:        cfg,
		origin:     time.Now().Add(-time.Millisecond),
		inbox:      newInbox(cfg.InboxReports, cfg.InboxOthers),
		sched:      scheduler.New(cfg.Seed),
		workers:    make(map[fsm.WorkerID]*worker),
		jobs:       make(map[fsm.JobID]*jobInfo),
		orphans:    make(map[fsm.AttemptRef]orphan),
		uploads:    make(map[string]*submission),
		cleanUps:   make(map[fsm.TaskRef]time.Time),
		readySince: make(map[fsm.TaskRef]time.Time),
		pipe:       make(chan struct{}, cfg.InFlight),
		// Batches without operations need no token; the committer takes them as
		// fast as those before them are committed.
		commits: make(chan inFlight, cfg.InFlight+16),
		failed:  make(chan struct{}),
		ready:   make(chan struct{}),
		madeAt:  time.Now(),
	}
	s.view, _ = cfg.Machine.Fork()
	return s, nil
}

// Term is the Raft term that this sequencer leads.
func (s *Sequencer) Term() uint64 { return s.cfg.Term }

// Ready is closed when the first entry of the term is committed: from then on
// workers and clients are served.
func (s *Sequencer) Ready() <-chan struct{} { return s.ready }

// StopAssigning keeps tasks from being assigned, or allows it again.
func (s *Sequencer) StopAssigning(stop bool) {
	s.assignOff.Store(stop)
	s.inbox.signal()
}

// Run leads until ctx is done or an entry fails, and returns why. All that it
// started has ended then, and all who wait have an answer.
func (s *Sequencer) Run(ctx context.Context) error {
	var committer sync.WaitGroup
	committer.Go(s.commit)
	err := s.lead(ctx)
	close(s.commits)
	committer.Wait()
	s.finish()
	return err
}

// finish answers all who wait, once nothing is on its way any more.
func (s *Sequencer) finish() {
	s.inbox.close(ErrTermEnded)
	s.left.refuse(ErrTermEnded)
	for _, w := range s.workers {
		if w.session != nil {
			w.session.Close(ErrTermEnded)
		}
	}
}

func (s *Sequencer) lead(ctx context.Context) error {
	if err := s.startTerm(ctx); err != nil {
		return err
	}
	tick := time.NewTimer(s.untilNext())
	defer tick.Stop()
	for {
		if s.hasWork() {
			select {
			case s.pipe <- struct{}{}:
				s.cycle()
			case <-ctx.Done():
				return cause(ctx)
			case <-s.failed:
				return s.failure
			}
			continue
		}
		tick.Reset(s.untilNext())
		select {
		case <-s.inbox.wake:
			s.more = true
		case <-tick.C:
		case <-ctx.Done():
			return cause(ctx)
		case <-s.failed:
			return s.failure
		}
	}
}

// hasWork reports whether a cycle would do anything.
func (s *Sequencer) hasWork() bool {
	return s.more || s.left.waits() || s.untilNext() <= 0
}

// cycle makes one entry of all that waits. The caller has put a token into the
// pipe for it.
func (s *Sequencer) cycle() {
	select {
	case <-s.inbox.wake: // what it stands for is taken below
	default:
	}
	s.share()
	b := s.newBatch()
	s.left.run(s, b, classReport)
	s.left.run(s, b, classWorker)
	s.absorb(b)
	s.fire(b)
	s.left.run(s, b, classCancel)
	s.absorb(b)
	s.left.run(s, b, classSubmit)
	s.absorb(b)
	s.letCleanUp(b)
	s.reuse(b)
	s.assign(b)
	s.steal(b)
	s.more = !b.room()
	s.propose(b)
}

// propose sends a batch on its way.
func (s *Sequencer) propose(b *batch) {
	items := b.draft.Items()
	entry, digest, ok := b.draft.Finish()
	if !ok {
		<-s.pipe
		if !b.empty() {
			s.commits <- inFlight{batch: b}
		}
		return
	}
	data := s.cfg.Codec.Encode(make([]byte, 0, b.draft.Size()), entry)
	s.cfg.Machine.CacheDecoded(data, entry)
	t := s.cfg.Totals
	t.Entries.Add(1)
	t.Operations.Add(uint64(items)) //nolint:gosec // a count
	t.Bytes.Add(uint64(len(data)))
	s.commits <- inFlight{batch: b, proposal: s.cfg.Log.Propose(data), data: data, digest: digest}
}

// commit waits for entries in order and lets out what follows them. It ends
// when commits is closed; whoever is still in it then has an answer.
func (s *Sequencer) commit() {
	var failure error
	for f := range s.commits {
		failure = s.settle(f, failure)
	}
}

// settle waits for one entry and lets out what follows it. failure is what the
// first entry that failed left behind, nil before; so is the result.
func (s *Sequencer) settle(f inFlight, failure error) error {
	if failure != nil {
		f.batch.fail(failure)
		s.release(f)
		if f.proposal != nil {
			s.cfg.Machine.DropDecoded(f.data)
		}
		return failure
	}
	index, err := s.await(f)
	s.release(f)
	if err == nil {
		f.batch.deliver(index)
		return nil
	}
	failure = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	answer := failure
	if s.cfg.Definite(err) {
		answer = ErrTermEnded
	}
	f.batch.fail(answer)
	s.failure = err
	close(s.failed)
	return failure
}

// release takes the entry's token out of the pipe.
func (s *Sequencer) release(f inFlight) {
	if f.proposal != nil {
		<-s.pipe
	}
}

// await waits for one entry and compares what it did with what the view did.
func (s *Sequencer) await(f inFlight) (uint64, error) {
	if f.proposal == nil {
		return 0, nil
	}
	response, index, err := f.proposal.Wait()
	if err != nil {
		s.cfg.Machine.DropDecoded(f.data)
		return 0, err
	}
	applied, ok := response.(fsm.Applied)
	if !ok {
		err, _ := response.(error)
		return 0, errors.Join(errors.New("sequencer: the state machine did not apply"), err)
	}
	if applied.Digest != f.digest || applied.Rejected != fsm.Accepted {
		err := fmt.Errorf("sequencer: the replicated state at log entry %d differs from the view that it was checked against (digest %x, want %x; %v)",
			index, applied.Digest, f.digest, applied.Rejected)
		s.cfg.Halt(err)
		return 0, err
	}
	return index, nil
}

// ask runs f in the sequencer's goroutine and waits for it.
func (s *Sequencer) ask(ctx context.Context, f func()) error {
	q := &question{f: f, done: make(chan error, 1)}
	if err := s.inbox.put(classWorker, q); err != nil {
		return err
	}
	select {
	case err := <-q.done:
		return err
	case <-ctx.Done():
		return cause(ctx)
	}
}

type question struct {
	f    func()
	done chan error // size 1: the asker may have gone
}

func (q *question) run(*Sequencer, *batch) bool {
	q.f()
	q.done <- nil
	return true
}

func (q *question) refuse(err error) { q.done <- err }

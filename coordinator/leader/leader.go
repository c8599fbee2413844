package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// barrierTimeout bounds how long a new leader may take to catch up with what
	// was committed before it.
	barrierTimeout = 3 * time.Second
	// transferTimeout bounds the hand-over of a leader that cannot lead.
	transferTimeout = time.Second
)

// ErrTermOver is the cause of a duty's cancelled context when its term was lost,
// rather than the process being stopped.
var ErrTermOver = errors.New("leader: the term is over")

// errReturned is why a term fails whose duty ended without an error.
var errReturned = errors.New("returned before the term was over")

// Raft is what leading needs of consensus.
type Raft interface {
	// LeaderCh sends true when this replica has won an election and false when
	// it leads no longer. It keeps the latest only, so that true after true
	// tells of a term that was lost unseen.
	LeaderCh() <-chan bool
	// Leading says whether this replica leads at this moment.
	Leading() bool
	// Barrier returns when all that was committed before is applied here, with
	// the term in which this replica leads. It fails when the term changed.
	Barrier(ctx context.Context) (term uint64, err error)
	// Transfer returns when another replica has taken over, or with an error.
	Transfer(ctx context.Context) error
}

// A Duty is what only the leader may do.
type Duty interface {
	// Name is for messages: one or two lower-case words.
	Name() string
	// Run does the duty for one term, until ctx is done, and returns when all
	// that it started has ended. A return before that, with or without an
	// error, fails the term.
	Run(ctx context.Context, term uint64) error
}

// Run leads whenever raft makes this replica the leader. It returns when ctx is done,
// with its cause; or with an error when this replica leads, cannot do its duties
// and cannot step down: then the process must end, for only that makes the others
// elect one that can. Whatever it returns, no duty is running any more.
func Run(ctx context.Context, raft Raft, log *slog.Logger, duties ...Duty) error {
	var now *term // nil while this replica does not lead
	defer func() { now.end(context.Cause(ctx)) }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case leading := <-raft.LeaderCh():
			now.end(ErrTermOver)
			now = nil
			if leading {
				now = begin(ctx, raft, log, duties)
			}
		case err := <-now.over():
			now.cancel(err)
			now = nil
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			log.ErrorContext(ctx, "cannot do the duties of the leader, stepping down", "err", err)
			if stuck := stepDown(ctx, raft); stuck != nil {
				return fmt.Errorf("cannot lead: %w; and cannot step down: %w", err, stuck)
			}
		}
	}
}

// stepDown returns an error only if this replica leads still. A transfer that fails
// because leadership is lost already has done what it should.
func stepDown(ctx context.Context, raft Raft) error {
	if !raft.Leading() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := raft.Transfer(ctx); err != nil && raft.Leading() {
		return err
	}
	return nil
}

// A term is one call of lead on its way. The methods of a nil term, a follower's, do
// nothing.
type term struct {
	cancel context.CancelCauseFunc
	result chan error // of size 1: lead sends its result once, and never waits
}

func begin(ctx context.Context, raft Raft, log *slog.Logger, duties []Duty) *term {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &term{cancel: cancel, result: make(chan error, 1)}
	go func() { t.result <- lead(ctx, raft, log, duties) }()
	return t
}

// end stops the term and waits for all that it started.
func (t *term) end(cause error) {
	if t == nil {
		return
	}
	t.cancel(cause)
	<-t.result //nolint:errcheck // it says that the term was over, which is why it ended
}

// over receives the result of a term that ended by itself.
func (t *term) over() <-chan error {
	if t == nil {
		return nil
	}
	return t.result
}

// lead is a term: it catches up, does the duties, and returns when all have ended.
func lead(ctx context.Context, raft Raft, log *slog.Logger, duties []Duty) error {
	number, err := catchUp(ctx, raft)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "leading", "term", number)
	defer log.InfoContext(ctx, "no longer leading", "term", number)

	group, ctx := errgroup.WithContext(ctx)
	for _, duty := range duties {
		group.Go(func() error {
			err := duty.Run(ctx, number)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx) // it ended because its term did
			case err == nil:
				err = errReturned
			}
			return fmt.Errorf("%s: %w", duty.Name(), err)
		})
	}
	if len(duties) == 0 {
		<-ctx.Done()
	}
	return group.Wait()
}

func catchUp(ctx context.Context, raft Raft) (term uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, barrierTimeout, fmt.Errorf("not caught up within %v", barrierTimeout))
	defer cancel()
	term, err = raft.Barrier(ctx)
	if err != nil {
		return 0, fmt.Errorf("catching up: %w", err)
	}
	return term, nil
}

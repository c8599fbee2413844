package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/internal/timescale"
)

const (
	// barrierTimeout bounds how long a new leader may take to catch up with what
	// was committed before it.
	barrierTimeout = 3 * time.Second
	// transferTimeout bounds the hand-over of a leader that cannot lead.
	transferTimeout = 2 * time.Second
	// transferPause is the time between two attempts at that.
	transferPause = 20 * time.Millisecond
	// endLimit is how long what belongs to a term may take to end after it.
	endLimit = 10 * time.Second
	endCheck = 100 * time.Millisecond
)

// ErrTermEnded is the cause of a duty's cancelled context when its term was lost,
// rather than the process being stopped.
var ErrTermEnded = errors.New("leader: term ended")

// ErrStuck is why Run returns when something that belongs to a term did not end with
// it. The process must end: it must not lead again beside what is left.
var ErrStuck = errors.New("leader: something did not end with its term")

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
// elect one that can. Unless it returns ErrStuck, no duty is running any more.
func Run(ctx context.Context, raft Raft, log *slog.Logger, duties ...Duty) error {
	return RunScaled(ctx, 1, raft, log, duties...)
}

// RunScaled is Run with all its limits scaled. For simulations only.
func RunScaled(ctx context.Context, p timescale.Factor, raft Raft, log *slog.Logger, duties ...Duty) error {
	var now *term // nil while this replica does not lead
	for {
		select {
		case <-ctx.Done():
			return errors.Join(now.end(context.Cause(ctx)), context.Cause(ctx))
		case leading := <-raft.LeaderCh():
			if stuck := now.end(ErrTermEnded); stuck != nil {
				return stuck
			}
			now = nil
			if leading {
				now = begin(ctx, p, raft, log, duties)
			}
		case err := <-now.over():
			now.cancel(err)
			now = nil
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, ErrStuck) {
				return err
			}
			log.ErrorContext(ctx, "cannot do the duties of the leader, stepping down", "err", err)
			if stuck := stepDown(ctx, p, raft); stuck != nil {
				return fmt.Errorf("cannot lead: %w; and cannot step down: %w", err, stuck)
			}
		}
	}
}

// stepDown returns an error only if this replica leads still. A transfer that fails
// because leadership is lost already has done what it should, and one that fails
// because another is on its way, an operator's, is tried again when that may be over.
func stepDown(ctx context.Context, p timescale.Factor, raft Raft) error {
	ctx, cancel := context.WithTimeout(ctx, p.Scale(transferTimeout))
	defer cancel()
	for raft.Leading() {
		err := untilEnd(ctx, p, func() error { return raft.Transfer(ctx) })
		if err == nil || !raft.Leading() {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(p.Scale(transferPause)):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// A term is one call of lead on its way. The methods of a nil term, a follower's, do
// nothing.
type term struct {
	cancel context.CancelCauseFunc
	result chan error // of size 1: lead sends its result once, and never waits
}

func begin(ctx context.Context, p timescale.Factor, raft Raft, log *slog.Logger, duties []Duty) *term {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &term{cancel: cancel, result: make(chan error, 1)}
	go func() { t.result <- lead(ctx, p, raft, log, duties) }()
	return t
}

// end stops the term and waits for all that it started; it is ErrStuck if that does
// not end.
func (t *term) end(cause error) error {
	if t == nil {
		return nil
	}
	t.cancel(cause)
	if err := <-t.result; errors.Is(err, ErrStuck) {
		return err
	}
	return nil // what it says else is why it ended
}

// over receives the result of a term that ended by itself.
func (t *term) over() <-chan error {
	if t == nil {
		return nil
	}
	return t.result
}

// lead is a term: it catches up, does the duties, and returns when all have ended.
func lead(ctx context.Context, p timescale.Factor, raft Raft, log *slog.Logger, duties []Duty) error {
	number, err := catchUp(ctx, p, raft)
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
	return untilEnd(ctx, p, group.Wait)
}

// untilEnd waits for f, and only for so long once ctx is done. It counts its looks,
// not the time between them: a process that was stopped gets the rest of its time.
func untilEnd(ctx context.Context, p timescale.Factor, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	tick := time.NewTicker(p.Scale(endCheck))
	defer tick.Stop()
	for range int(endLimit / endCheck) {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
	}
	return fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
}

func catchUp(ctx context.Context, p timescale.Factor, raft Raft) (term uint64, err error) {
	limit := p.Scale(barrierTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not caught up within %v", limit))
	defer cancel()
	err = untilEnd(ctx, p, func() (err error) {
		term, err = raft.Barrier(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("catching up: %w", err)
	}
	return term, nil
}

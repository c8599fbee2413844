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
	// barrierTimeout bounds the time in which a new leader applies everything
	// that was committed before its term.
	barrierTimeout = 3 * time.Second
	// transferTimeout bounds the leadership transfer of a leader that can't
	// lead.
	transferTimeout = 2 * time.Second
	// transferRetryDelay is the time between two attempts at the transfer.
	transferRetryDelay = 20 * time.Millisecond
	// stopTimeout bounds the time in which everything that belongs to a term
	// ends.
	stopTimeout = 10 * time.Second
	// stopCheckInterval is how often stopTimeout is checked.
	stopCheckInterval = 100 * time.Millisecond
)

// ErrTermEnded is the cause of a duty's cancelled context if its term was lost.
// If the process stops, the cause is that of Run's context.
var ErrTermEnded = errors.New("leader: term ended")

// ErrStuck is returned by Run when something that belongs to a term did not end
// with it. The process must exit: it must not lead again beside what is left.
var ErrStuck = errors.New("leader: duties still running after their term")

// errReturned is why a term fails whose duty returned nil.
var errReturned = errors.New("returned before the end of the term")

// Raft is what leading needs of consensus.
type Raft interface {
	// LeaderCh sends true when this replica has won an election, and false when
	// it no longer leads. It keeps only the latest value: true after true means
	// that a term was lost in between.
	LeaderCh() <-chan bool
	// Leading reports whether this replica leads now.
	Leading() bool
	// Barrier returns after everything that was committed before is applied on
	// this replica, with the term in which the replica leads. It fails if the
	// term has changed.
	Barrier(ctx context.Context) (term uint64, err error)
	// Transfer returns after another replica has become the leader, or an
	// error.
	Transfer(ctx context.Context) error
}

// A Duty is work that only the leader does.
type Duty interface {
	// Name returns one or two lower-case words for messages.
	Name() string
	// Run does the duty for one term, until ctx is done, and returns after
	// everything that it started has ended. If it returns before, with or
	// without an error, the term fails.
	Run(ctx context.Context, term uint64) error
}

// Config configures Run.
type Config struct {
	Raft   Raft
	Logger *slog.Logger
	Duties []Duty
	// TimeScale scales all limits. For simulations only.
	TimeScale timescale.Factor
}

// Run leads whenever Raft makes this replica the leader. It returns the cause
// of ctx when ctx is done. It returns an error if this replica leads, can't do
// its duties and can't step down: the process must then exit, so that the
// others elect a leader that can. Unless the error is ErrStuck, no duty is
// running any more.
func Run(ctx context.Context, cfg Config) error {
	var now *term // nil while this replica doesn't lead
	for {
		select {
		case <-ctx.Done():
			return errors.Join(now.stop(context.Cause(ctx)), context.Cause(ctx))
		case leading := <-cfg.Raft.LeaderCh():
			if stuck := now.stop(ErrTermEnded); stuck != nil {
				return stuck
			}
			now = nil
			if leading {
				now = cfg.startTerm(ctx)
			}
		case err := <-now.failed():
			now.cancel(err)
			now = nil
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, ErrStuck) {
				return err
			}
			cfg.Logger.ErrorContext(ctx, "leader duties failed; stepping down", "err", err)
			if stuck := cfg.stepDown(ctx); stuck != nil {
				return fmt.Errorf("leading: %w; stepping down: %w", err, stuck)
			}
		}
	}
}

// stepDown returns an error only if this replica still leads. A transfer that
// fails because leadership is already lost is a success. A transfer that fails
// because another one is in progress is repeated.
func (c *Config) stepDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.TimeScale.Scale(transferTimeout))
	defer cancel()
	for c.Raft.Leading() {
		err := c.await(ctx, func() error { return c.Raft.Transfer(ctx) })
		if err == nil || !c.Raft.Leading() {
			return nil
		}
		select {
		case <-time.After(c.TimeScale.Scale(transferRetryDelay)):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// A term is a call of lead in progress. The methods of a nil term, a
// follower's, do nothing.
type term struct {
	cancel context.CancelCauseFunc
	result chan error // size 1: lead sends its result once, and never waits
}

func (c *Config) startTerm(ctx context.Context) *term {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &term{cancel: cancel, result: make(chan error, 1)}
	go func() { t.result <- c.lead(ctx) }()
	return t
}

// stop ends the term and waits for everything that it started. It returns
// ErrStuck if that doesn't end.
func (t *term) stop(cause error) error {
	if t == nil {
		return nil
	}
	t.cancel(cause)
	if err := <-t.result; errors.Is(err, ErrStuck) {
		return err
	}
	return nil // any other result is the cause
}

// failed returns a channel with the result of a term that ends by itself.
func (t *term) failed() <-chan error {
	if t == nil {
		return nil
	}
	return t.result
}

// lead is a term: it catches up, runs the duties, and returns after all have
// ended.
func (c *Config) lead(ctx context.Context) error {
	number, err := c.catchUp(ctx)
	if err != nil {
		return err
	}
	c.Logger.InfoContext(ctx, "leading", "term", number)
	defer c.Logger.InfoContext(ctx, "no longer leading", "term", number)

	group, ctx := errgroup.WithContext(ctx)
	for _, duty := range c.Duties {
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
	if len(c.Duties) == 0 {
		<-ctx.Done()
	}
	return c.await(ctx, group.Wait)
}

// await waits for f, and after ctx is done for stopTimeout at most. It counts
// checks instead of time, so that a process that was paused gets the rest of
// its time.
func (c *Config) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	tick := time.NewTicker(c.TimeScale.Scale(stopCheckInterval))
	defer tick.Stop()
	for range int(stopTimeout / stopCheckInterval) {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
	}
	return fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
}

func (c *Config) catchUp(ctx context.Context) (term uint64, err error) {
	limit := c.TimeScale.Scale(barrierTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not caught up within %v", limit))
	defer cancel()
	err = c.await(ctx, func() (err error) {
		term, err = c.Raft.Barrier(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("catching up: %w", err)
	}
	return term, nil
}
